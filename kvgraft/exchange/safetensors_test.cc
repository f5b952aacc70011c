#include "kvgraft/exchange/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvgraft::exchange {
namespace {

using ::testing::HasSubstr;

// A file with this header and so many bytes of data.
std::vector<uint8_t> File(std::string_view header, size_t data_bytes) {
  ByteWriter out;
  out.U64(header.size());
  out.Bytes(AsBytes(header));
  out.ZerosTo(out.size() + data_bytes);
  return std::move(out).Take();
}

std::string Tensors(std::string_view a, std::string_view b = "") {
  std::string text = "{\"a\":{" + std::string(a) + "}";
  if (!b.empty()) text += ",\"b\":{" + std::string(b) + "}";
  return text + "}";
}

void ExpectRefused(const std::vector<uint8_t>& file, const std::string& says,
                   Code code = Code::kCorrupt) {
  const auto parsed = SafetensorsView::Parse(file, "x.safetensors");
  ASSERT_FALSE(parsed.ok()) << says;
  EXPECT_EQ(parsed.status().code(), code) << parsed.status().message();
  EXPECT_THAT(parsed.status().message(), HasSubstr(says));
  EXPECT_THAT(parsed.status().message(), HasSubstr("x.safetensors"));
}

std::vector<uint8_t> Sample() {
  std::vector<Tensor> tensors = {{.name = "b", .dtype = "F32", .shape = {2, 3}},
                                 {.name = "a", .dtype = "F16", .shape = {5}},
                                 {.name = "none", .dtype = "U8", .shape = {0, 7}},
                                 {.name = "one", .dtype = "I64", .shape = {}}};
  auto file = EncodeHeader(&tensors, {{"who", "kvgraft \"é\""}, {"n", "1"}});
  EXPECT_TRUE(file.ok()) << file.status().message();
  for (uint8_t i = 0; i < 24 + 10 + 8; ++i) file->push_back(i);
  return *file;
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const std::vector<uint8_t> file = Sample();
  EXPECT_TRUE(LooksLikeSafetensors(file));
  const auto parsed = SafetensorsView::Parse(file, "x");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->metadata(), (Metadata{{"n", "1"}, {"who", "kvgraft \"é\""}}));
  ASSERT_EQ(parsed->tensors().size(), 4u);
  const Tensor* a = parsed->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, "F16");
  EXPECT_EQ(a->shape, std::vector<uint64_t>{5});
  EXPECT_EQ(parsed->data(*a)[0], 24);
  EXPECT_EQ(parsed->data(*a).size(), 10u);
  EXPECT_TRUE(parsed->data(*parsed->Find("none")).empty());
  EXPECT_EQ(parsed->data(*parsed->Find("one")).back(), 24 + 10 + 7);
  EXPECT_EQ(parsed->Find("c"), nullptr);
  // The data starts where numbers of every type may.
  EXPECT_EQ((file.size() - 42) % 64, 0u);
}

// Byte for byte as the page of the format has it.
TEST(Safetensors, GoldenBytes) {
  std::vector<Tensor> tensors = {{.name = "x", .dtype = "I32", .shape = {2}}};
  const auto header = EncodeHeader(&tensors, {{"k", "v"}});
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->size(), 128u);
  EXPECT_EQ((*header)[0], 120);
  const std::string text(AsChars(ByteSpan(*header).subspan(8)));
  EXPECT_EQ(text.substr(0, text.find_last_not_of(' ') + 1),
            R"({"__metadata__":{"k":"v"},"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})");
}

TEST(Safetensors, EveryPrefixFails) {
  const std::vector<uint8_t> file = Sample();
  for (size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(SafetensorsView::Parse(ByteSpan(file).first(n), "x").ok()) << n;
  }
  std::vector<uint8_t> longer = file;
  longer.push_back(0);
  ExpectRefused(longer, "the file has 43");
}

TEST(Safetensors, SizesThatLie) {
  const auto f32 = [](const char* shape, const char* offsets) {
    return std::string("\"dtype\":\"F32\",\"shape\":") + shape + ",\"data_offsets\":" + offsets;
  };
  EXPECT_TRUE(SafetensorsView::Parse(File(Tensors(f32("[2]", "[0,8]")), 8), "x").ok());
  ExpectRefused(File(Tensors(f32("[3]", "[0,8]")), 8), "its shape takes 12 bytes");
  ExpectRefused(File(Tensors(f32("[2]", "[0,12]")), 12), "its shape takes 8 bytes");
  ExpectRefused(File(Tensors(f32("[2]", "[8,0]")), 8), "data_offsets are 8 to 0");
  ExpectRefused(File(Tensors(f32("[2]", "[8,16]")), 8), "starts at byte 8");
  ExpectRefused(File(Tensors(f32("[2]", "[0,8]")), 7), "the file has 7");
  ExpectRefused(File(Tensors(f32("[2]", "[0,8]"), f32("[1]", "[4,8]")), 8), "reaches byte 8");
  ExpectRefused(File(Tensors(f32("[2]", "[0,8]"), f32("[2]", "[0,8]")), 8), "reaches byte 8");
  ExpectRefused(File(Tensors(f32("[2]", "[0,8]"), f32("[1]", "[12,16]")), 16), "ends at byte 8");
  // 2^62 floats, and 2^32 * 2^32 of them: neither wraps around to a small size.
  ExpectRefused(File(Tensors(f32("[4611686018427387904]", "[0,0]")), 0), "2^63");
  ExpectRefused(File(Tensors(f32("[4294967296,4294967296]", "[0,0]")), 0), "2^63");
  ExpectRefused(File(Tensors(f32("[18446744073709551616]", "[0,0]")), 0), "shape");
  ExpectRefused(File(Tensors(f32("[-1]", "[0,0]")), 0), "shape");
  ExpectRefused(File(Tensors(f32("[1.5]", "[0,6]")), 6), "shape");
  ExpectRefused(File(Tensors(f32("[1]", "[0]")), 4), "data_offsets");
  ExpectRefused(File(Tensors(f32("[1]", "[0,4,8]")), 4), "data_offsets");
  ExpectRefused(File(Tensors(f32("[1,1,1,1,1,1,1,1,1]", "[0,4]")), 4), "shape");
}

TEST(Safetensors, HeadersThatAreNone) {
  ExpectRefused(File(Tensors(R"("dtype":"F4","shape":[2],"data_offsets":[0,1])"), 1), "\"F4\"",
                Code::kUnsupported);
  ExpectRefused(File(Tensors(R"("dtype":4,"shape":[2],"data_offsets":[0,1])"), 1), "dtype");
  ExpectRefused(File(Tensors(R"("shape":[2],"data_offsets":[0,1])"), 1), "dtype");
  ExpectRefused(File(Tensors(R"("dtype":"U8","data_offsets":[0,1])"), 1), "shape");
  ExpectRefused(File(Tensors(R"("dtype":"U8","shape":[1])"), 1), "data_offsets");
  ExpectRefused(File(R"({"a":7})", 0), "not an object");
  ExpectRefused(File(R"({"__metadata__":{"a":1}})", 0), "not a string");
  ExpectRefused(File(R"({"__metadata__":[]})", 0), "not an object");
  ExpectRefused(File("[]", 0), "'{'");
  ExpectRefused(File(" {}", 0), "'{'");
  ExpectRefused(File("", 0), "'{'");
  ExpectRefused(File("{", 0), "JSON");
  ExpectRefused(File("{} x", 0), "JSON");
  ExpectRefused(File("{\"a\":\"\xff\"}", 0), "JSON");
  ExpectRefused(File(R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", 1), "deep");
  // Two readers may take two members of one name for different tensors.
  const std::string one = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  ExpectRefused(File("{" + one + "," + one + "}", 4), "twice");
  EXPECT_TRUE(SafetensorsView::Parse(File("{}   ", 0), "x").ok());

  std::vector<uint8_t> file = Sample();
  for (const uint64_t length : {uint64_t{1} << 24, (uint64_t{1} << 24) + 1, uint64_t{1} << 63}) {
    for (int i = 0; i < 8; ++i)
      file[static_cast<size_t>(i)] = static_cast<uint8_t>(length >> 8 * i);
    EXPECT_EQ(SafetensorsView::Parse(file, "x").status().code(), Code::kCorrupt);
  }
}

TEST(Safetensors, NoFlippedBitLeadsOutOfBounds) {
  const std::vector<uint8_t> good = Sample();
  const size_t head = good.size() - 42;
  for (size_t bit = 0; bit < 8 * head; ++bit) {
    std::vector<uint8_t> file = good;
    file[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto parsed = SafetensorsView::Parse(file, "x");
    if (!parsed.ok()) continue;
    for (const Tensor& t : parsed->tensors()) {
      EXPECT_EQ(parsed->data(t).size(), TensorBytes(t).value()) << bit;
    }
  }
}

TEST(Safetensors, WhatCannotBeWritten) {
  std::vector<Tensor> twice = {{.name = "a", .dtype = "U8"}, {.name = "a", .dtype = "U8"}};
  EXPECT_EQ(EncodeHeader(&twice, {}).status().code(), Code::kInvalidArgument);
  std::vector<Tensor> reserved = {{.name = "__metadata__", .dtype = "U8"}};
  EXPECT_EQ(EncodeHeader(&reserved, {}).status().code(), Code::kInvalidArgument);
  std::vector<Tensor> type = {{.name = "a", .dtype = "Q8_0"}};
  EXPECT_EQ(EncodeHeader(&type, {}).status().code(), Code::kUnsupported);
  std::vector<Tensor> fine = {{.name = "a", .dtype = "U8"}};
  EXPECT_EQ(EncodeHeader(&fine, {{"k", "\xff"}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(EncodeHeader(&fine, {{"k", std::string(kMaxHeaderBytes, 'x')}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_FALSE(LooksLikeSafetensors(AsBytes("\x89KVG\r\n\x1a\n")));
  EXPECT_FALSE(LooksLikeSafetensors({}));
}

}  // namespace
}  // namespace kvgraft::exchange
