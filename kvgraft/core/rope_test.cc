#include "kvgraft/core/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvgraft {
namespace {

using ::testing::HasSubstr;

std::vector<float> RandomHead(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> head(n);
  for (float& x : head) x = normal(random);
  return head;
}

std::vector<float> Turned(const RopeTurn& turn, const RopeSpec& spec, std::vector<float> head) {
  turn.Apply(spec, head);
  return head;
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
}

RopeSpec Llama31() {
  RopeSpec spec{.pairing = RopePairing::kInterleaved, .n_rot = 16, .freq_base = 500000.0f};
  spec.freq_factors = {1, 1, 1, 1.5f, 4, 8, 8, 8};
  return spec;
}
RopeSpec Yarn() {
  return {.n_rot = 16,
          .freq_scale = 0.25f,
          .ext_factor = 1.0f,
          .attn_factor = 1.0f,
          .n_ctx_orig = 4096};
}
std::vector<RopeSpec> Specs() {
  return {{.n_rot = 16},
          {.pairing = RopePairing::kInterleaved, .n_rot = 16},
          {.offset = 8, .n_rot = 8, .freq_base = 1e6f},
          {.n_rot = 16, .freq_scale = 0.125f},
          Llama31(),
          Yarn()};
}

// RoFormer, equation 34: pair i turns by pos * base^(-2i/n).
TEST(Rope, AnglesAreThePapers) {
  const RopeSpec spec{.n_rot = 8};
  std::vector<float> angles(4);
  RopeAngles(spec, 100, angles);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(angles[i], 100 * std::pow(10000.0, -2.0 * i / 8), 1e-5 * 100);
  }
}

TEST(Rope, PairsOfBothKinds) {
  std::vector<float> head = {1, 0, 0, 0};
  const RopeSpec split{.n_rot = 4}, together{.pairing = RopePairing::kInterleaved, .n_rot = 4};
  const float c = std::cos(1.0f), s = std::sin(1.0f);
  ExpectNear(Turned(RopeTurn::At(split, 1), split, head), {c, 0, s, 0}, 1e-6f);
  ExpectNear(Turned(RopeTurn::At(together, 1), together, head), {c, s, 0, 0}, 1e-6f);
}

TEST(Rope, OnlyTheRotatedDimensionsChange) {
  const RopeSpec spec{.offset = 4, .n_rot = 8};
  const auto head = RandomHead(16, 1);
  const auto turned = Turned(RopeTurn::Between(spec, 3, 90), spec, head);
  for (size_t i = 0; i < 16; ++i) {
    if (i < 4 || i >= 12) EXPECT_EQ(turned[i], head[i]) << i;
    if (i >= 4 && i < 12) EXPECT_NE(turned[i], head[i]) << i;
  }
}

// What every use relies on: from p to q is what the engine would have written at q.
TEST(Rope, BetweenIsWhatAtWouldHaveWritten) {
  for (const RopeSpec& spec : Specs()) {
    const auto head = RandomHead(16, 2);
    for (const auto& [p, q] : {std::pair{0, 1}, {0, 3000}, {3000, 0}, {17, 8192}, {512, 511}}) {
      const auto at_p = Turned(RopeTurn::At(spec, p), spec, head);
      const auto at_q = Turned(RopeTurn::At(spec, q), spec, head);
      ExpectNear(Turned(RopeTurn::Between(spec, p, q), spec, at_p), at_q, 4e-6f);
    }
  }
}

TEST(Rope, OutTakesPositionAndMagnitudeAway) {
  for (const RopeSpec& spec : Specs()) {
    const auto head = RandomHead(16, 3);
    const auto there = Turned(RopeTurn::At(spec, 1234), spec, head);
    ExpectNear(Turned(RopeTurn::Out(spec, 1234), spec, there), head, 4e-6f);
  }
}

TEST(Rope, ScalingDividesThePosition) {
  const RopeSpec scaled{.n_rot = 8, .freq_scale = 0.5f}, plain{.n_rot = 8};
  std::vector<float> a(4), b(4);
  RopeAngles(scaled, 200, a);
  RopeAngles(plain, 100, b);
  EXPECT_EQ(a, b);
}

TEST(Rope, FrequencyFactorsDivideTheAngles) {
  const RopeSpec with = Llama31();
  RopeSpec without = with;
  without.freq_factors.clear();
  std::vector<float> a(8), b(8);
  RopeAngles(with, 77, a);
  RopeAngles(without, 77, b);
  for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(a[i] * with.freq_factors[i], b[i]);
}

// YaRN, section 3.2: fast dimensions keep their angle, slow ones are scaled, between them a ramp;
// section 3.4: keys are longer by 0.1 ln(s) + 1.
TEST(Rope, YarnKeepsFastAnglesAndScalesSlowOnes) {
  RopeSpec plain = Yarn();
  plain.ext_factor = 0;
  plain.freq_scale = 1;
  std::vector<float> yarn(8), full(8);
  RopeAngles(Yarn(), 1000, yarn);
  RopeAngles(plain, 1000, full);
  EXPECT_FLOAT_EQ(yarn[0], full[0]);
  EXPECT_FLOAT_EQ(yarn[7], full[7] / 4);
  for (int i = 1; i < 8; ++i) EXPECT_LE(yarn[i] / full[i], yarn[i - 1] / full[i - 1] * 1.0001f);
  EXPECT_NEAR(RopeMagnitude(Yarn()), 1 + 0.1 * std::log(4.0), 1e-6);
  EXPECT_EQ(RopeMagnitude(plain), 1.0f);
}

TEST(Rope, RefusesWhatNoEngineApplies) {
  const auto refused = [](const RopeSpec& spec, const char* says) {
    const Status status = CheckRope(spec, 16);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(says));
  };
  EXPECT_TRUE(CheckRope({.n_rot = 16}, 16).ok());
  refused({.n_rot = 0}, "head of 16");
  refused({.n_rot = 7}, "even");
  refused({.n_rot = 18}, "head of 16");
  refused({.offset = 10, .n_rot = 8}, "10 to 18");
  refused({.n_rot = 8, .freq_base = 0}, "base");
  refused({.n_rot = 8, .freq_base = NAN}, "base");
  refused({.n_rot = 8, .freq_scale = -1}, "scale");
  refused({.n_rot = 8, .freq_factors = {1, 2}}, "2 frequency factors, expected 4");
  refused({.n_rot = 8, .ext_factor = 1}, "YaRN");
}

}  // namespace
}  // namespace kvgraft
