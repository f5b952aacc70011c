#include "kvgraft/core/bytes.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvgraft {
namespace {

TEST(BytesTest, NumbersAreLittleEndianAndRoundTrip) {
  ByteWriter w;
  w.U8(0x01);
  w.U16(0x0203);
  w.U32(0x04050607);
  w.U64(0x08090a0b0c0d0e0f);
  w.I32(-2);
  const std::vector<uint8_t> expected = {1,  3,  2,  7, 6, 5,    4,    15,   14,  13,
                                         12, 11, 10, 9, 8, 0xfe, 0xff, 0xff, 0xff};
  EXPECT_EQ(w.bytes(), expected);
  ByteReader r(w.bytes(), "test");
  EXPECT_EQ(*r.U8(), 1);
  EXPECT_EQ(*r.U16(), 0x0203);
  EXPECT_EQ(*r.U32(), 0x04050607u);
  EXPECT_EQ(*r.U64(), 0x08090a0b0c0d0e0full);
  EXPECT_EQ(*r.I32(), -2);
  EXPECT_EQ(r.remaining(), 0u);
}

TEST(BytesTest, AReadPastTheEndIsCorruptAndMovesNothing) {
  const std::vector<uint8_t> three = {1, 2, 3};
  ByteReader r(three, "little file");
  const auto failed = r.U32();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), Code::kCorrupt);
  EXPECT_NE(failed.status().message().find("little file"), std::string::npos);
  EXPECT_EQ(r.offset(), 0u);
  EXPECT_EQ(*r.U16(), 0x0201);
  for (uint64_t n : {uint64_t{2}, uint64_t{1} << 31, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_EQ(r.Take(n).status().code(), Code::kCorrupt) << n;
    EXPECT_EQ(r.Skip(n).code(), Code::kCorrupt) << n;
    EXPECT_EQ(r.remaining(), 1u);
  }
  EXPECT_TRUE(r.Skip(1).ok());
  EXPECT_TRUE(r.Take(0).ok());
  EXPECT_FALSE(r.U8().ok());
}

TEST(BytesTest, TakeIsAView) {
  const std::vector<uint8_t> bytes = {1, 2, 3, 4};
  ByteReader r(bytes, "test");
  const auto view = r.Take(3);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->data(), bytes.data());
  EXPECT_EQ(view->size(), 3u);
}

TEST(BytesTest, ZerosToOnlyGrows) {
  ByteWriter w;
  w.U16(0xffff);
  w.ZerosTo(4);
  w.ZerosTo(1);
  EXPECT_EQ(w.bytes(), (std::vector<uint8_t>{0xff, 0xff, 0, 0}));
}

TEST(BytesTest, FormatBytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(36280729), "34.6 MiB");
  EXPECT_EQ(FormatBytes(~uint64_t{0}), "16.0 EiB");
}

}  // namespace
}  // namespace kvgraft
