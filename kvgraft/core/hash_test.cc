#include "kvgraft/core/hash.h"

#include <gtest/gtest.h>

#include <fstream>
#include <utility>
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

// Values that two implementations agree on, this library and the one in tests/format: one for each
// way that the algorithm, and the library's choice of kernels, treats a length.
TEST(HashTest, Xxh3KnownValues) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  const std::vector<std::pair<size_t, uint64_t>> expected = {
      {0, 0x2d06800538d394c2},    {1, 0xc44bdff4074eecdb},    {3, 0x6811538b444fc6dc},
      {8, 0xe5b43ab074c9c13b},    {16, 0x0a0ec5ae8679cb7f},   {17, 0x57c52d21ce492c1e},
      {128, 0x696069c4f1e6a91a},  {129, 0xb1ada52285757beb},  {240, 0xb80284837259eee4},
      {241, 0x44dbd3180a664e27},  {1024, 0xc6c700c409d40c4b}, {1025, 0x3ef78c3256f23450},
      {2048, 0x7b13f69fad35de00}, {5000, 0x01f8ab17e509b9d1},
  };
  for (const auto& [n, hash] : expected) EXPECT_EQ(Xxh3(ByteSpan(bytes).first(n)), hash) << n;
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
