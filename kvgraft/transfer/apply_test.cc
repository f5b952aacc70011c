#include "kvgraft/transfer/apply.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kvgraft/core/random.h"
#include "kvgraft/math/cells.h"
#include "kvgraft/math/testing.h"

namespace kvgraft::transfer {
namespace {

using math::FloatMatrix;
using math::Matrix;
using math::testing::State;

constexpr RopeSpec kSplit = {.n_rot = 16, .freq_base = 1e6f};
constexpr float kLargest = 8;  // of what the tests write, about

// Keys and values of two layers; layer 1 turns in pairs, and stretched by YaRN.
KvLayout Layout(uint32_t n_heads, uint32_t head_dim, DType type) {
  KvLayout layout;
  layout.ropes = {kSplit,
                  {.pairing = RopePairing::kInterleaved,
                   .n_rot = 8,
                   .freq_scale = 0.25f,
                   .ext_factor = 1.0f,
                   .n_ctx_orig = 2048}};
  for (uint32_t i = 0; i < 4; ++i) {
    StreamSpec s;
    s.kind = i < 2 ? StreamKind::kKey : StreamKind::kValue;
    s.layer = i % 2;
    s.n_heads = n_heads;
    s.head_dim = head_dim;
    s.type = type;
    s.rope = i < 2 ? static_cast<int32_t>(i) : -1;
    layout.streams.push_back(s);
  }
  return layout;
}

std::vector<size_t> Cells(size_t n) {
  std::vector<size_t> cells(n);
  std::iota(cells.begin(), cells.end(), size_t{0});
  return cells;
}

FloatMatrix Rows(const State& state, unsigned n_threads = 1) {
  const RowLayout rows = MakeRowLayout(state.layout).value();
  const std::vector<size_t> cells = Cells(state.view.positions[0].size());
  FloatMatrix out(cells.size(), rows.width);
  EXPECT_TRUE(ReadRows(math::Readable(state.view), rows, cells, out.view(), n_threads).ok());
  return out;
}

FloatMatrix Noise(size_t rows, size_t cols, uint64_t seed) {
  FloatMatrix out(rows, cols);
  Random random(seed);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      out.row(i)[j] = static_cast<float>(kLargest * (random.Unit() - 0.5));
    }
  }
  return out;
}

// A state whose rows in content space are these, from position first_pos on.
State StateOf(const KvLayout& layout, const FloatMatrix& rows, int32_t first_pos) {
  State state(layout, rows.rows(), first_pos);
  EXPECT_TRUE(WriteRows(state.view, MakeRowLayout(layout).value(), 0, rows.view(), 2).ok());
  return state;
}

void ExpectNear(const FloatMatrix& a, const FloatMatrix& b, float tolerance) {
  ASSERT_EQ(a.rows(), b.rows());
  ASSERT_EQ(a.cols(), b.cols());
  for (size_t i = 0; i < a.rows(); ++i) {
    for (size_t j = 0; j < a.cols(); ++j) ASSERT_NEAR(a.row(i)[j], b.row(i)[j], tolerance);
  }
}

// What is written at a position and read again is the same, wherever it stood.
TEST(Rows, ContentDoesNotDependOnThePosition) {
  const FloatMatrix rows = Noise(100, 4 * 3 * 16, 1);
  for (const int32_t first : {0, 1, 3000, 32000}) {
    ExpectNear(Rows(StateOf(Layout(3, 16, DType::kF32), rows, first), 3), rows, 1e-5f * kLargest);
    ExpectNear(Rows(StateOf(Layout(3, 16, DType::kF16), rows, first)), rows, 2e-3f * kLargest);
  }
}

// Layer 0's keys stand in the state as the engine would have turned them.
TEST(Rows, KeysInTheStateAreTurned) {
  const KvLayout layout = Layout(3, 16, DType::kF32);
  const FloatMatrix rows = Noise(5, 4 * 3 * 16, 2);
  const State state = StateOf(layout, rows, 700);
  std::vector<float> cell(48), want(rows.row(4), rows.row(4) + 48);
  ASSERT_TRUE(math::ReadCells(math::Readable(state.view), 0, 4, 1, cell).ok());
  for (size_t h = 0; h < 3; ++h) {
    RopeTurn::At(kSplit, 704).Apply(kSplit, std::span(want).subspan(h * 16, 16));
  }
  EXPECT_EQ(cell, want);
}

TEST(Rows, ChosenCells) {
  const State state = StateOf(Layout(1, 16, DType::kF32), Noise(50, 64, 3), 10);
  const FloatMatrix all = Rows(state);
  const RowLayout layout = MakeRowLayout(state.layout).value();
  const std::vector<size_t> cells = {3, 4, 5, 20, 49};
  FloatMatrix some(cells.size(), layout.width);
  ASSERT_TRUE(ReadRows(math::Readable(state.view), layout, cells, some.view()).ok());
  for (size_t i = 0; i < cells.size(); ++i) {
    for (size_t j = 0; j < layout.width; ++j) EXPECT_EQ(some.row(i)[j], all.row(cells[i])[j]);
  }
  const std::vector<size_t> outside = {3, 50};
  EXPECT_EQ(ReadRows(math::Readable(state.view), layout, outside,
                     some.view().Block(0, 0, 2, layout.width))
                .code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ReadRows(math::Readable(state.view), layout, cells,
                     some.view().Block(0, 0, 5, layout.width - 1))
                .code(),
            Code::kInvalidArgument);
}

TEST(Rows, StatesThatDoNotKeepEveryTokenAreRefused) {
  for (const TableKind kind : {TableKind::kWindow, TableKind::kRecurrent, TableKind::kIndexer}) {
    KvLayout layout = Layout(1, 16, DType::kF32);
    layout.tables.push_back(kind);
    const Status status = MakeRowLayout(layout).status();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_NE(status.message().find(TableKindName(kind)), std::string::npos);
  }
}

LowRankMap Identity(size_t n) {
  LowRankMap map;
  map.mean_x.assign(n, 0.25);
  map.mean_y.assign(n, 0.25);
  map.encoder = Matrix(n, n);
  map.decoder = Matrix(n, n);
  for (size_t i = 0; i < n; ++i) map.encoder.row(i)[i] = map.decoder.row(i)[i] = 1;
  return map;
}

// A model mapped to itself, at the same positions and at others.
TEST(MapCells, TheIdentityGivesTheStateItself) {
  const KvLayout layout = Layout(2, 16, DType::kF32);
  const FloatMatrix rows = Noise(700, 4 * 2 * 16, 4);  // more than are taken at once
  const State source = StateOf(layout, rows, 5);
  for (const int32_t first : {5, 2000}) {
    State target(layout, 710, first - 10);
    ASSERT_TRUE(MapCells(RowMap(Identity(rows.cols())), math::Readable(source.view), 0, 700,
                         target.view, 10, 2)
                    .ok());
    FloatMatrix got(700, rows.cols());
    std::vector<size_t> cells = Cells(700);
    for (size_t& c : cells) c += 10;
    ASSERT_TRUE(
        ReadRows(math::Readable(target.view), MakeRowLayout(layout).value(), cells, got.view())
            .ok());
    ExpectNear(got, rows, 1e-5f * kLargest);
  }
}

// Two models that differ in heads and sizes, an affine relation planted between them: fitted from
// moments of their states it carries over a text that it has not seen. With the heads of the source
// in another order it does not.
TEST(MapCells, APlantedRelationIsFittedAndCarriedOut) {
  const KvLayout small = Layout(2, 16, DType::kF16), large = Layout(3, 24, DType::kF16);
  const size_t p = 4 * 2 * 16, q = 4 * 3 * 24, rank = 20;
  const FloatMatrix a = Noise(p, rank, 5), b = Noise(rank, q, 6);
  const auto related = [&](const FloatMatrix& x) {
    FloatMatrix code(x.rows(), rank), y(x.rows(), q);
    math::Multiply(0.05f, x.view(), math::Op::kAsIs, a.view(), math::Op::kAsIs, 0.0f, code.view(),
                   1);
    math::Multiply(0.05f, code.view(), math::Op::kAsIs, b.view(), math::Op::kAsIs, 0.0f, y.view(),
                   1);
    for (size_t i = 0; i < y.rows(); ++i) {
      for (size_t j = 0; j < q; ++j) y.row(i)[j] += static_cast<float>(j % 3);
    }
    return y;
  };
  PairMoments moments(p, q);
  for (int32_t text = 0; text < 4; ++text) {
    const FloatMatrix x = Noise(600, p, 10 + static_cast<uint64_t>(text));
    const State s = StateOf(small, x, text), t = StateOf(large, related(x), text);
    ASSERT_TRUE(moments.Add(Rows(s).view(), Rows(t).view(), 2).ok());
  }
  LowRankOptions options;
  options.rank = rank;
  const LowRankMap map = FitLowRank(moments, options).value();

  const FloatMatrix x = Noise(200, p, 99), want = related(x);
  const auto error = [&](const FloatMatrix& source_rows) {
    const State source = StateOf(small, source_rows, 1000);
    State target(large, 200, 1000);
    EXPECT_TRUE(MapCells(RowMap(map), math::Readable(source.view), 0, 200, target.view, 0, 2).ok());
    const FloatMatrix got = Rows(target);
    double apart = 0, size = 0;
    for (size_t i = 0; i < 200; ++i) {
      for (size_t j = 0; j < q; ++j) {
        apart += std::pow(got.row(i)[j] - want.row(i)[j], 2);
        size += std::pow(want.row(i)[j], 2);
      }
    }
    return std::sqrt(apart / size);
  };
  EXPECT_LT(error(x), 0.01);
  FloatMatrix permuted = x;
  for (size_t i = 0; i < 200; ++i) {
    for (size_t at = 0; at < p; at += 32)
      std::rotate(permuted.row(i) + at, permuted.row(i) + at + 16, permuted.row(i) + at + 32);
  }
  EXPECT_GT(error(permuted), 0.3);
}

TEST(MapCells, RefusesOtherShapes) {
  const KvLayout layout = Layout(2, 16, DType::kF32);
  const State source(layout, 10, 0);
  State target(layout, 10, 0), other(Layout(1, 16, DType::kF32), 10, 0);
  const RowMap map(Identity(4 * 2 * 16));
  const KvView from = math::Readable(source.view);
  EXPECT_EQ(MapCells(map, from, 0, 5, other.view, 0, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(MapCells(map, math::Readable(other.view), 0, 5, target.view, 0, 1).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(MapCells(map, from, 6, 5, target.view, 0, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(MapCells(map, from, 0, 5, target.view, 6, 1).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvgraft::transfer
