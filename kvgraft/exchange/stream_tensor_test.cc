#include "kvgraft/exchange/stream_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kvgraft/math/cells.h"

namespace kvgraft::exchange {
namespace {

constexpr uint32_t kHeads = 2, kDim = 64, kCells = 70;  // more than a block of cells

// A state of one stream, over bytes of its own.
struct OneStream {
  explicit OneStream(const StreamSpec& spec) {
    layout.streams = {spec};
    const BlockSize block = BlockOf(spec.type).value();
    const size_t stride = spec.width() / block.elements * block.bytes;
    bytes.resize(stride * kCells);
    view.layout = &layout;
    view.positions = {std::vector<int32_t>(kCells)};
    view.streams = {{bytes, stride}};
  }
  KvLayout layout;
  std::vector<uint8_t> bytes;
  MutableKvView view;
};

StreamSpec Spec(DType type, StreamOrder order, uint32_t hadamard = 0) {
  StreamSpec s;
  s.layer = 3;
  s.n_heads = kHeads;
  s.head_dim = kDim;
  s.type = type;
  s.order = order;
  s.hadamard = hadamard;
  return s;
}

float Number(uint32_t cell, uint32_t head, uint32_t d) {
  return std::sin(static_cast<float>(cell * 131 + head * 17 + d)) * 3;
}

void Fill(OneStream* stream) {
  std::vector<float> cells;
  for (uint32_t c = 0; c < kCells; ++c) {
    for (uint32_t h = 0; h < kHeads; ++h) {
      for (uint32_t d = 0; d < kDim; ++d) cells.push_back(Number(c, h, d));
    }
  }
  ASSERT_TRUE(math::WriteCells(stream->view, 0, 0, kCells, cells).ok());
}

TEST(StreamTensor, EveryNumberStandsAtItsPlace) {
  const KeyOrder order{8, 16};
  const std::vector<uint32_t> places = PlacesInFile(order, kDim);
  for (const StreamOrder rows : {StreamOrder::kRows, StreamOrder::kColumns}) {
    OneStream stream(Spec(DType::kF32, rows));
    Fill(&stream);
    std::vector<uint8_t> tensor(stream.bytes.size());
    ASSERT_TRUE(ReadTensor(math::Readable(stream.view), 0, order, tensor).ok());
    for (uint32_t h = 0; h < kHeads; ++h) {
      for (uint32_t c = 0; c < kCells; ++c) {
        for (uint32_t d = 0; d < kDim; ++d) {
          float got = 0;
          std::memcpy(&got, &tensor[((h * kCells + c) * kDim + places[d]) * 4], 4);
          ASSERT_EQ(got, Number(c, h, d)) << h << " " << c << " " << d;
        }
      }
    }
  }
}

TEST(StreamTensor, BackAreTheSameBytes) {
  const StreamSpec specs[] = {
      Spec(DType::kF16, StreamOrder::kRows),      Spec(DType::kF16, StreamOrder::kColumns),
      Spec(DType::kBF16, StreamOrder::kColumns),  Spec(DType::kF32, StreamOrder::kColumns),
      Spec(DType::kQ8_0, StreamOrder::kRows, 64), Spec(DType::kQ4_0, StreamOrder::kRows)};
  for (const StreamSpec& spec : specs) {
    OneStream from(spec), to(spec);
    Fill(&from);
    const Tensor tensor = TensorFor(spec, kCells);
    EXPECT_EQ(tensor.name, "layers.3.key");
    EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{kHeads, kCells, kDim}));
    std::vector<uint8_t> bytes(TensorBytes(tensor).value());
    ASSERT_TRUE(ReadTensor(math::Readable(from.view), 0, {0, kDim}, bytes).ok());
    EXPECT_TRUE(AllFinite(tensor.dtype, bytes));
    ASSERT_TRUE(WriteTensor(to.view, 0, {0, kDim}, bytes).ok());
    EXPECT_TRUE(from.bytes == to.bytes) << DTypeName(spec.type);
  }
}

// Bits that a conversion through F32 would not keep.
TEST(StreamTensor, UnquantisedBitsAreMovedNotConverted) {
  OneStream from(Spec(DType::kF16, StreamOrder::kRows)), to(from.layout.streams[0]);
  for (size_t i = 0; i < from.bytes.size(); ++i)
    from.bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  from.bytes[0] = 0x01;
  from.bytes[1] = 0x7c;  // a signalling NaN
  std::vector<uint8_t> tensor(from.bytes.size());
  ASSERT_TRUE(ReadTensor(math::Readable(from.view), 0, {0, kDim}, tensor).ok());
  EXPECT_FALSE(AllFinite("F16", tensor));
  ASSERT_TRUE(WriteTensor(to.view, 0, {0, kDim}, tensor).ok());
  EXPECT_TRUE(from.bytes == to.bytes);
}

TEST(StreamTensor, OtherSizesAreRefused) {
  OneStream stream(Spec(DType::kF16, StreamOrder::kRows));
  std::vector<uint8_t> tensor(stream.bytes.size() - 2);
  EXPECT_EQ(ReadTensor(math::Readable(stream.view), 0, {}, tensor).code(), Code::kInvalidArgument);
  EXPECT_EQ(WriteTensor(stream.view, 0, {}, tensor).code(), Code::kInvalidArgument);
}

TEST(StreamTensor, FiniteByType) {
  const auto bytes = [](std::vector<uint8_t> b) { return b; };
  EXPECT_TRUE(AllFinite("F16", bytes({0xff, 0x7b})));    // 65504
  EXPECT_FALSE(AllFinite("F16", bytes({0x00, 0xfc})));   // -inf
  EXPECT_TRUE(AllFinite("BF16", bytes({0x00, 0x7c})));   // 2.7e36
  EXPECT_FALSE(AllFinite("BF16", bytes({0x81, 0x7f})));  // NaN
  EXPECT_TRUE(AllFinite("F32", bytes({0xff, 0xff, 0x7f, 0x7f})));
  EXPECT_FALSE(AllFinite("F32", bytes({0, 0, 0x80, 0x7f})));
}

}  // namespace
}  // namespace kvgraft::exchange
