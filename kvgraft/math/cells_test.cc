#include "kvgraft/math/cells.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvgraft::math {
namespace {

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kQ5_1,
                               DType::kQ5_0, DType::kQ4_1, DType::kQ4_0, DType::kIq4Nl};

// One stream of n cells over bytes of its own.
struct OneStream {
  OneStream(const StreamSpec& spec, size_t n_cells, size_t padding = 0) {
    layout.streams = {spec};
    const BlockSize block = BlockOf(spec.type).value();
    const size_t row = size_t{spec.width()} / block.elements * block.bytes;
    bytes.resize((row + padding) * n_cells);
    view.layout = &layout;
    view.positions.emplace_back();
    for (size_t i = 0; i < n_cells; ++i) view.positions[0].push_back(static_cast<int32_t>(i));
    view.streams = {{bytes, row + padding}};
  }
  KvLayout layout;
  std::vector<uint8_t> bytes;
  MutableKvView view;
};

StreamSpec Spec(DType type, uint32_t hadamard = 0) {
  StreamSpec spec;
  spec.n_heads = 2;
  spec.head_dim = 128;
  spec.type = type;
  spec.hadamard = hadamard;
  return spec;
}

std::vector<float> RandomValues(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  // Some channels far larger than others, as keys have them.
  for (size_t i = 0; i < n; ++i) values[i] = normal(random) * (i % 61 == 0 ? 40.0f : 1.0f);
  return values;
}

TEST(Cells, EveryTypeGivesItsBytesBack) {
  for (const DType type : kAllTypes) {
    const bool quantised = BlockOf(type).value().elements > 1;
    for (const uint32_t hadamard : {0u, 64u, 128u}) {
      if (hadamard > 0 && !quantised) continue;  // engines rotate quantised caches only
      for (uint64_t seed = 0; seed < 20; ++seed) {
        OneStream stream(Spec(type, hadamard), 50);
        const auto values = RandomValues(50 * 256, seed);
        ASSERT_TRUE(WriteCells(stream.view, 0, 0, 50, values).ok());
        const std::vector<uint8_t> before = stream.bytes;
        std::vector<float> read(values.size());
        ASSERT_TRUE(ReadCells(Readable(stream.view), 0, 0, 50, read).ok());
        ASSERT_TRUE(WriteCells(stream.view, 0, 0, 50, read).ok());
        EXPECT_EQ(stream.bytes, before) << DTypeName(type) << " hadamard " << hadamard;
      }
    }
  }
}

TEST(Cells, ReadsWhatWasWrittenButForRounding) {
  const std::pair<DType, float> tolerances[] = {
      {DType::kF32, 0}, {DType::kF16, 5e-4f}, {DType::kBF16, 4e-3f}, {DType::kQ8_0, 1e-2f}};
  for (const auto& [type, tolerance] : tolerances) {
    OneStream stream(Spec(type), 8);
    const auto values = RandomValues(8 * 256, 1);
    ASSERT_TRUE(WriteCells(stream.view, 0, 0, 8, values).ok());
    std::vector<float> read(values.size());
    ASSERT_TRUE(ReadCells(Readable(stream.view), 0, 0, 8, read).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      const float scale = type == DType::kQ8_0 ? 160.0f : std::fabs(values[i]);
      EXPECT_LE(std::fabs(read[i] - values[i]), tolerance * scale) << DTypeName(type);
    }
  }
}

// Columns hold the same numbers as rows.
TEST(Cells, ColumnsAndRowsAgree) {
  StreamSpec rows = Spec(DType::kF16), columns = Spec(DType::kF16);
  columns.order = StreamOrder::kColumns;
  OneStream a(rows, 30), b(columns, 30);
  const auto values = RandomValues(30 * 256, 2);
  ASSERT_TRUE(WriteCells(a.view, 0, 0, 30, values).ok());
  ASSERT_TRUE(WriteCells(b.view, 0, 0, 30, values).ok());
  EXPECT_NE(a.bytes, b.bytes);
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 30}, {7, 11}, {29, 1}, {3, 0}}) {
    std::vector<float> x(count * 256), y(count * 256);
    ASSERT_TRUE(ReadCells(Readable(a.view), 0, first, count, x).ok());
    ASSERT_TRUE(ReadCells(Readable(b.view), 0, first, count, y).ok());
    EXPECT_EQ(x, y);
  }
}

// A part of a row (MLA) leaves the rest of the row alone.
TEST(Cells, StridedRowsLeaveTheirNeighboursAlone) {
  OneStream stream(Spec(DType::kF16), 10, /*padding=*/64);
  std::fill(stream.bytes.begin(), stream.bytes.end(), 0xAB);
  ASSERT_TRUE(WriteCells(stream.view, 0, 0, 10, RandomValues(10 * 256, 3)).ok());
  for (size_t i = 0; i < 10; ++i) {
    for (size_t at = 512; at < 576; ++at) EXPECT_EQ(stream.bytes[i * 576 + at], 0xAB);
  }
}

TEST(Cells, HadamardIsItsOwnInverseAndKeepsLengths) {
  auto values = RandomValues(256, 4);
  const auto before = values;
  Hadamard(values, 64);
  double was = 0, is = 0;
  for (size_t i = 0; i < 64; ++i)
    was += double{before[i]} * before[i], is += double{values[i]} * values[i];
  EXPECT_NEAR(was, is, 1e-3 * was);
  EXPECT_NE(values, before);
  Hadamard(values, 64);
  for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(values[i], before[i], 1e-4);
  // The first row of H is all ones.
  std::vector<float> ones(64, 1.0f);
  Hadamard(ones, 64);
  EXPECT_FLOAT_EQ(ones[0], 8.0f);
  for (size_t i = 1; i < 64; ++i) EXPECT_FLOAT_EQ(ones[i], 0.0f);
}

TEST(Cells, RefusesWrongRanges) {
  OneStream stream(Spec(DType::kF16), 10);
  std::vector<float> values(256 * 4);
  const KvView view = Readable(stream.view);
  EXPECT_TRUE(ReadCells(view, 0, 6, 4, values).ok());
  for (const auto& [s, first, count] :
       {std::tuple<size_t, size_t, size_t>{0, 7, 4}, {1, 0, 4}, {0, 0, 3}, {0, 11, 0}}) {
    EXPECT_EQ(ReadCells(view, s, first, count, values).code(), Code::kInvalidArgument);
    EXPECT_EQ(WriteCells(stream.view, s, first, count, values).code(), Code::kInvalidArgument);
  }
  stream.layout.streams[0].type = static_cast<DType>(77);
  EXPECT_EQ(ReadCells(view, 0, 0, 4, values).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace kvgraft::math
