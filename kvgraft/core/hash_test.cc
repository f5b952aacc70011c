#include "kvgraft/core/hash.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

namespace kvgraft {
namespace {

TEST(HashTest, Sha256StandardVectors) {
  // FIPS 180-4 examples.
  EXPECT_EQ(Sha256Hex(std::string_view("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex(std::string_view("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HashTest, Sha256InPartsIsTheSame) {
  Sha256 hash;
  hash.Update("a");
  hash.Update("");
  Sha256 moved = std::move(hash);
  moved.Update("bc");
  EXPECT_EQ(moved.Finish(), Sha256Hex(std::string_view("abc")));
}

TEST(HashTest, Xxh3KnownValues) {
  // Of the xxHash project's own test table: XXH3_64bits of nothing.
  EXPECT_EQ(Xxh3({}), 0x2d06800538d394c2ull);
  // The same value on every path that the library may choose by length and processor.
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  EXPECT_EQ(Xxh3(ByteSpan(bytes).first(3)), 0x7bf4fee2a04efaadull);
  EXPECT_EQ(Xxh3(ByteSpan(bytes).first(16)), 0xefb1a9d29fc4a8ceull);
  EXPECT_EQ(Xxh3(ByteSpan(bytes).first(200)), 0x0ull);
  EXPECT_EQ(Xxh3(bytes), 0x0ull);
}

TEST(HashTest, Sha256File) {
  const std::string path = testing::TempDir() + "/kvgraft_hash_test";
  std::ofstream(path, std::ios::binary) << std::string(3000000, 'x');
  ASSERT_TRUE(Sha256File(path).ok());
  EXPECT_EQ(*Sha256File(path), Sha256Hex(std::string(3000000, 'x')));
  EXPECT_EQ(Sha256File(path + ".none").status().code(), Code::kNotFound);
  EXPECT_EQ(Sha256File(testing::TempDir()).status().code(), Code::kIo);
}

TEST(HashTest, IsSha256Hex) {
  const std::string good(64, 'a');
  EXPECT_TRUE(IsSha256Hex(good));
  EXPECT_FALSE(IsSha256Hex(good.substr(1)));
  EXPECT_FALSE(IsSha256Hex(good + "0"));
  EXPECT_FALSE(IsSha256Hex(std::string(64, 'A')));
  EXPECT_FALSE(IsSha256Hex(std::string(64, 'g')));
}

}  // namespace
}  // namespace kvgraft
