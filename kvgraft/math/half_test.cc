#include "kvgraft/math/half.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace kvgraft::math {
namespace {

TEST(Half, EveryHalfComesBack) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  HalfToFloat(halves.data(), halves.size(), floats.data());
  std::vector<uint16_t> back(halves.size());
  FloatToHalf(floats.data(), floats.size(), back.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(std::isnan(floats[i]), std::isnan(ggml_fp16_to_fp32(halves[i])));
    if (std::isnan(floats[i])) continue;
    ASSERT_EQ(floats[i], ggml_fp16_to_fp32(halves[i])) << i;
    ASSERT_EQ(back[i], halves[i]) << i;
  }
}

// As the engine rounds: ties, subnormals, overflow, and every length of the tail.
TEST(Half, RoundsAsTheEngineDoes) {
  std::mt19937_64 random(1);
  std::vector<float> floats = {0.0f,     -0.0f,    1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 65504.0f,
                               65520.0f, 0x1p-24f, 0x1p-25f,        3 * 0x1p-26f,        1e30f};
  while (floats.size() < 100003) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(f)) floats.push_back(f);
    floats.push_back(std::ldexp(static_cast<float>(random() % 4096), -11 - (random() % 12)));
  }
  for (const size_t n : {floats.size(), size_t{1}, size_t{7}, size_t{8}, size_t{9}}) {
    std::vector<uint16_t> out(n);
    FloatToHalf(floats.data(), n, out.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], ggml_fp32_to_fp16(floats[i])) << floats[i];
  }
}

}  // namespace
}  // namespace kvgraft::math
