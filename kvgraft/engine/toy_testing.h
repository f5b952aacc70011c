// What the tests of ToyEngine share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kvgraft/engine/toy_engine.h"

namespace kvgraft::engine {

inline std::vector<Token> RandomTokens(uint64_t seed, size_t n) {
  std::mt19937_64 random(seed);
  std::vector<Token> tokens(n);
  for (Token& t : tokens) t = static_cast<Token>(random() % 256);
  return tokens;
}

inline std::unique_ptr<Context> NewContext(Model& model, const ContextOptions& options = {}) {
  auto context = model.NewContext(options);
  EXPECT_TRUE(context.ok()) << context.status().message();
  return std::move(context).value();
}

inline std::vector<uint8_t> Image(Context& context) {
  std::vector<uint8_t> image(context.ImageBytes().value());
  const Status status = context.SaveImage(image);
  EXPECT_TRUE(status.ok()) << status.message();
  return image;
}

inline std::vector<float> LastLogits(Context& context, std::span<const Token> tokens,
                                     Schedule schedule = Schedule::kExact) {
  Logits logits;
  const Status status = context.Decode(tokens, schedule, 1, &logits);
  EXPECT_TRUE(status.ok()) << status.message();
  return logits.values;
}

// Equal in every bit.
inline bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double max = 0;
  for (size_t i = 0; i < a.size(); ++i) max = std::max(max, std::abs(double{a[i]} - double{b[i]}));
  return max;
}

}  // namespace kvgraft::engine
