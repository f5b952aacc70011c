#include "kvgraft/exchange/key_order.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvgraft/core/rope.h"

namespace kvgraft::exchange {
namespace {

StreamSpec Key(uint32_t head_dim, int32_t rope = 0) {
  StreamSpec s;
  s.n_heads = 2;
  s.head_dim = head_dim;
  s.rope = rope;
  return s;
}

KvLayout Layout(RopePairing pairing, uint32_t n_rot, uint32_t offset = 0) {
  KvLayout layout;
  layout.ropes = {{.pairing = pairing, .offset = offset, .n_rot = n_rot}};
  return layout;
}

TEST(KeyOrder, OnlyWhatTheConverterPermutedIsPermutedBack) {
  const KvLayout pairs = Layout(RopePairing::kInterleaved, 8);
  const KvLayout halves = Layout(RopePairing::kHalfSplit, 8);
  EXPECT_EQ(OrderFor(pairs, Key(8), "llama"), (KeyOrder{0, 8}));
  EXPECT_EQ(OrderFor(halves, Key(8), "qwen2"), KeyOrder());
  EXPECT_EQ(OrderFor(halves, Key(8), "llama"), KeyOrder());
  // Interleaved in Hugging Face's code too.
  EXPECT_EQ(OrderFor(pairs, Key(8), "command-r"), KeyOrder());
  EXPECT_EQ(OrderFor(pairs, Key(8), "deepseek2"), KeyOrder());
  // Rotated in part; a NoPE layer.
  EXPECT_EQ(OrderFor(Layout(RopePairing::kInterleaved, 4, 2), Key(8), "llama"), (KeyOrder{2, 4}));
  EXPECT_EQ(OrderFor(pairs, Key(8, -1), "smollm3"), (KeyOrder{0, 8}));
  EXPECT_EQ(OrderFor(halves, Key(8, -1), "qwen2"), KeyOrder());
  StreamSpec value = Key(8, -1);
  value.kind = StreamKind::kValue;
  EXPECT_EQ(OrderFor(pairs, value, "llama"), KeyOrder());
  StreamSpec mla = Key(8);
  mla.kind = StreamKind::kMlaRopeKey;
  EXPECT_EQ(OrderFor(pairs, mla, "llama"), KeyOrder());
}

TEST(KeyOrder, PairsGoToTheTwoHalves) {
  EXPECT_EQ(PlacesInFile({0, 8}, 8), (std::vector<uint32_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(PlacesInFile({2, 4}, 8), (std::vector<uint32_t>{0, 1, 2, 4, 3, 5, 6, 7}));
  EXPECT_EQ(PlacesInFile({}, 3), (std::vector<uint32_t>{0, 1, 2}));
}

// The point of it: permuted weights, rotated in pairs, and permuted back are the numbers that
// Hugging Face's rotation of halves gives.
TEST(KeyOrder, RotatedPairsAreRotatedHalves) {
  constexpr uint32_t kDim = 64;
  for (const uint32_t n_rot : {64u, 32u}) {
    const KvLayout engine = Layout(RopePairing::kInterleaved, n_rot);
    const KvLayout hugging_face = Layout(RopePairing::kHalfSplit, n_rot);
    const std::vector<uint32_t> places = PlacesInFile(OrderFor(engine, Key(kDim), "llama"), kDim);
    std::vector<float> theirs(kDim), ours(kDim);
    for (uint32_t d = 0; d < kDim; ++d) theirs[d] = std::sin(static_cast<float>(d * d));
    for (uint32_t d = 0; d < kDim; ++d) ours[d] = theirs[places[d]];  // as the converter does
    RopeTurn::At(engine.ropes[0], 777).Apply(engine.ropes[0], ours);
    RopeTurn::At(hugging_face.ropes[0], 777).Apply(hugging_face.ropes[0], theirs);
    for (uint32_t d = 0; d < kDim; ++d) EXPECT_EQ(ours[d], theirs[places[d]]) << d;
  }
}

}  // namespace
}  // namespace kvgraft::exchange
