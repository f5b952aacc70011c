#include "kvgraft/graft/move.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "kvgraft/math/cells.h"
#include "kvgraft/math/testing.h"

namespace kvgraft::graft {
namespace {

using math::testing::State;

constexpr size_t kCells = 70;

std::vector<RopeSpec> Ropes() {
  return {{.n_rot = 64},
          {.pairing = RopePairing::kInterleaved, .n_rot = 64, .freq_base = 1e6f},
          {.offset = 32, .n_rot = 32},
          {.n_rot = 64, .freq_scale = 0.25f, .ext_factor = 1.0f, .n_ctx_orig = 2048}};
}

KvLayout Layout(DType type) {
  KvLayout layout;
  layout.ropes = Ropes();
  layout.tables = {TableKind::kAll, TableKind::kWindow};
  for (uint32_t i = 0; i < layout.ropes.size(); ++i) {
    StreamSpec s;
    s.layer = i;
    s.table = i % 2;
    s.n_heads = 3;
    s.head_dim = 64;
    s.type = type;
    s.rope = static_cast<int32_t>(i);
    layout.streams.push_back(s);
    s.kind = StreamKind::kValue;
    s.rope = -1;
    s.type = DType::kF16;
    s.order = StreamOrder::kColumns;
    layout.streams.push_back(s);
  }
  return layout;
}

// What the engine writes for the same texts from position `first_pos` on.
State Written(DType type, int32_t first_pos) {
  State state(Layout(type), kCells, first_pos);
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < state.layout.streams.size(); ++i) {
    const StreamSpec& s = state.layout.streams[i];
    std::vector<float> cells(kCells * s.width());
    for (float& x : cells) x = normal(random);
    if (s.rope >= 0) {
      const RopeSpec& rope = state.layout.ropes[static_cast<size_t>(s.rope)];
      for (size_t c = 0; c < kCells; ++c) {
        const RopeTurn turn = RopeTurn::At(rope, first_pos + static_cast<int32_t>(c));
        for (size_t h = 0; h < s.n_heads; ++h) {
          turn.Apply(rope, std::span(cells).subspan(c * s.width() + h * 64, 64));
        }
      }
    }
    EXPECT_TRUE(math::WriteCells(state.view, i, 0, kCells, cells).ok());
  }
  return state;
}

// Distance in units of the last place.
int Ulps(uint16_t a, uint16_t b) {
  const auto order = [](uint16_t x) { return x & 0x8000 ? -int{x & 0x7fff} : int{x}; };
  return std::abs(order(a) - order(b));
}

TEST(MoveKeys, GivesWhatTheEngineWritesThere) {
  for (const auto& [p, q] : {std::pair{0, 1}, {0, 3000}, {3000, 8}, {100, 99}}) {
    State moved = Written(DType::kF16, p);
    const State there = Written(DType::kF16, q);
    ASSERT_TRUE(MoveKeys(&moved.view, q - p, 2).ok());
    EXPECT_EQ(moved.view.positions, there.view.positions);
    for (size_t i = 0; i < moved.bytes.size(); ++i) {
      if (moved.layout.streams[i].rope < 0) {
        EXPECT_EQ(moved.bytes[i], there.bytes[i]);
        continue;
      }
      // A component that is small beside its partner carries the partner's rounding.
      const auto* a = reinterpret_cast<const uint16_t*>(moved.bytes[i].data());
      const auto* b = reinterpret_cast<const uint16_t*>(there.bytes[i].data());
      size_t apart = 0;
      for (size_t e = 0; e < moved.bytes[i].size() / 2; ++e) apart += Ulps(a[e], b[e]) > 1;
      EXPECT_LT(apart, moved.bytes[i].size() / 2 / 10) << "rope " << i / 2;
    }
  }
}

// F32 keys come back; what is left is the rounding of one product.
TEST(MoveKeys, ThereAndBackInF32) {
  State state = Written(DType::kF32, 10);
  const State before = Written(DType::kF32, 10);
  ASSERT_TRUE(MoveKeys(&state.view, 5000).ok());
  EXPECT_NE(state.bytes[0], before.bytes[0]);
  ASSERT_TRUE(MoveKeys(&state.view, -5000).ok());
  for (size_t i = 0; i < state.bytes.size(); i += 2) {
    const auto* a = reinterpret_cast<const float*>(state.bytes[i].data());
    const auto* b = reinterpret_cast<const float*>(before.bytes[i].data());
    for (size_t e = 0; e < state.bytes[i].size() / 4; ++e) ASSERT_NEAR(a[e], b[e], 1e-5);
  }
}

TEST(MoveKeys, ThreadsDoNotMatter) {
  State one = Written(DType::kF16, 0), four = Written(DType::kF16, 0);
  ASSERT_TRUE(MoveKeys(&one.view, 100, 1).ok());
  ASSERT_TRUE(MoveKeys(&four.view, 100, 4).ok());
  EXPECT_EQ(one.bytes, four.bytes);
}

TEST(MoveKeys, QuantisedKeysStayNear) {
  State moved = Written(DType::kQ8_0, 0);
  const State there = Written(DType::kQ8_0, 700);
  ASSERT_TRUE(MoveKeys(&moved.view, 700).ok());
  std::vector<float> a(kCells * 192), b(kCells * 192);
  for (size_t i = 0; i < moved.bytes.size(); i += 2) {
    ASSERT_TRUE(math::ReadCells(math::Readable(moved.view), i, 0, kCells, a).ok());
    ASSERT_TRUE(math::ReadCells(math::Readable(there.view), i, 0, kCells, b).ok());
    for (size_t e = 0; e < a.size(); ++e) ASSERT_NEAR(a[e], b[e], 0.08) << i;
  }
}

TEST(MoveKeys, RefusesToLeaveTheNumbers) {
  State state = Written(DType::kF16, 10);
  const State before = Written(DType::kF16, 10);
  for (const int64_t delta : {int64_t{-11}, int64_t{0x7fffffff}, int64_t{1} << 40}) {
    EXPECT_EQ(MoveKeys(&state.view, delta).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(state.bytes, before.bytes);
  EXPECT_EQ(state.view.positions, before.view.positions);
  EXPECT_TRUE(MoveKeys(&state.view, 0).ok());
  EXPECT_EQ(state.bytes, before.bytes);
}

// A stream's cells first .. first+count-1 as numbers.
std::vector<float> Cells(const State& state, size_t stream, size_t first, size_t count) {
  std::vector<float> out(count * state.layout.streams[stream].width());
  EXPECT_TRUE(math::ReadCells(math::Readable(state.view), stream, first, count, out).ok());
  return out;
}

TEST(PlaceCells, PutsStatesTogether) {
  const State a = Written(DType::kF16, 0), b = Written(DType::kF16, 70);
  State all(Layout(DType::kF16), 2 * kCells, 0);
  const Placement of_a[] = {{0, 0, kCells, 0, 0}, {1, 0, kCells, 0, 0}};
  const Placement of_b[] = {{0, 0, kCells, kCells, 0}, {1, 0, kCells, kCells, 0}};
  ASSERT_TRUE(PlaceCells(math::Readable(a.view), of_a, all.view).ok());
  ASSERT_TRUE(PlaceCells(math::Readable(b.view), of_b, all.view).ok());
  for (size_t i = 0; i < all.layout.streams.size(); ++i) {
    EXPECT_EQ(Cells(all, i, 0, kCells), Cells(a, i, 0, kCells));
    EXPECT_EQ(Cells(all, i, kCells, kCells), Cells(b, i, 0, kCells));
  }
}

// A run of cells, turned on its way behind others: the same bytes as if all had been turned in
// place and the run copied; all others, of the second table every one, keep theirs. Runs longer and
// shorter than what a thread takes at once, and none.
TEST(PlaceCells, TurnsOnTheWay) {
  for (const DType type : {DType::kF16, DType::kQ8_0}) {
    State turned = Written(type, 100);
    const State from = Written(type, 100);
    ASSERT_TRUE(MoveKeys(&turned.view, 50).ok());
    for (const size_t count : {size_t{0}, size_t{1}, size_t{30}, kCells - 3}) {
      State to = Written(type, 0);
      const State before = Written(type, 0);
      const Placement run[] = {{0, 3, count, 2, 50}};
      ASSERT_TRUE(PlaceCells(math::Readable(from.view), run, to.view, 2).ok());
      EXPECT_EQ(to.view.positions, before.view.positions);
      for (size_t i = 0; i < to.layout.streams.size(); ++i) {
        if (to.layout.streams[i].table == 1) {
          EXPECT_EQ(to.bytes[i], before.bytes[i]) << i;
          continue;
        }
        EXPECT_EQ(Cells(to, i, 0, 2), Cells(before, i, 0, 2)) << i;
        EXPECT_EQ(Cells(to, i, 2, count), Cells(turned, i, 3, count)) << i;
        const size_t behind = 2 + count;
        EXPECT_EQ(Cells(to, i, behind, kCells - behind), Cells(before, i, behind, kCells - behind));
      }
    }
  }
}

TEST(PlaceCells, RefusesBeforeAnythingIsWritten) {
  const State from = Written(DType::kF16, 100);
  State to = Written(DType::kF16, 0);
  const State before = Written(DType::kF16, 0);
  const Placement good = {0, 0, 10, 0, 5};
  for (const Placement& bad : {Placement{0, 1, kCells, 0, 0},
                               {0, 0, kCells, 1, 0},
                               {0, 0, 1, kCells + 1, 0},
                               {0, kCells + 1, 0, 0, 0},
                               {2, 0, 1, 0, 0},
                               {0, 0, 1, 0, -101},
                               {0, kCells - 1, 1, 0, 0x7fffffff}}) {
    const Placement both[] = {good, bad};
    EXPECT_EQ(PlaceCells(math::Readable(from.view), both, to.view).code(), Code::kInvalidArgument);
    EXPECT_EQ(to.bytes, before.bytes);
  }
  State other(Layout(DType::kF32), kCells, 0);
  EXPECT_EQ(PlaceCells(math::Readable(from.view), {&good, 1}, other.view).code(), Code::kMismatch);
}

}  // namespace
}  // namespace kvgraft::graft
