#include "kvgraft/session/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace kvgraft::session {
namespace {

using engine::Token;

// Everything off but the temperature.
SamplingOptions Plain(float temperature, uint64_t seed = 1) {
  return {.temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
}

std::vector<float> RandomLogits(uint64_t seed, size_t n) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(n);
  for (float& l : logits) l = normal(random);
  return logits;
}

std::map<Token, int> Draw(std::span<const float> logits, const SamplingOptions& options, int n) {
  std::map<Token, int> counts;
  for (int i = 0; i < n; ++i) ++counts[Sample(logits, options, i)];
  return counts;
}

std::vector<Token> Support(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<Token> tokens;
  for (const auto& [token, count] : Draw(logits, options, 20000)) tokens.push_back(token);
  return tokens;
}

TEST(Sampling, GreedyTakesTheLowestIdOfEqualLogits) {
  EXPECT_EQ(Sample(std::vector<float>{1, 3, 2, 3}, {}, 0), 1);
  EXPECT_EQ(Sample(std::vector<float>{5, 5, 5}, {}, 9), 0);
  EXPECT_EQ(Sample(std::vector<float>{NAN, -2, NAN, -1}, {}, 0), 3);
}

TEST(Sampling, FrequenciesAreTheProbabilities) {
  const auto logits = RandomLogits(3, 20);
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    const int n = 40000;
    const auto counts = Draw(logits, Plain(temperature), n);
    std::vector<float> scaled = logits;
    for (float& l : scaled) l /= temperature;
    for (Token t = 0; t < 20; ++t) {
      const double p = std::exp(LogProb(scaled, t));
      const double found = counts.contains(t) ? counts.at(t) / double{n} : 0;
      EXPECT_NEAR(found, p, 4.5 * std::sqrt(p * (1 - p) / n) + 1e-4) << t << " at " << temperature;
    }
  }
}

TEST(Sampling, TopK) {
  const auto logits = RandomLogits(4, 300);
  SamplingOptions options = Plain(5.0f);
  options.top_k = 7;
  std::vector<Token> best(300);
  for (Token t = 0; t < 300; ++t) best[t] = t;
  std::sort(best.begin(), best.end(), [&](Token a, Token b) { return logits[a] > logits[b]; });
  best.resize(7);
  EXPECT_THAT(Support(logits, options), ::testing::UnorderedElementsAreArray(best));
  options.top_k = 1;
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(Sample(logits, options, i), best[0]);
  // Of equal logits the lower ids are kept.
  options.top_k = 2;
  EXPECT_EQ(Support(std::vector<float>(10, 1.0f), options), (std::vector<Token>{0, 1}));
}

// Probabilities 0.4, 0.3, 0.2, 0.06, 0.04, in another order.
const std::vector<float> kFive = {std::log(0.2f), std::log(0.04f), std::log(0.4f), std::log(0.06f),
                                  std::log(0.3f)};

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  SamplingOptions options = Plain(1.0f);
  options.top_p = 0.65f;
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{2, 4}));
  options.top_p = 0.75f;
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{0, 2, 4}));
  options.top_p = 1e-6f;
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{2}));
}

TEST(Sampling, MinPIsRelativeToTheMostLikely) {
  SamplingOptions options = Plain(1.0f);
  options.min_p = 0.2f;  // of 0.4: 0.08
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{0, 2, 4}));
  options.min_p = 0.12f;
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{0, 2, 3, 4}));
  options.min_p = 1.0f;
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{2}));
}

// The order of llama.cpp's default chain: the cuts look at the distribution before the temperature.
TEST(Sampling, CutsComeBeforeTheTemperature) {
  for (float temperature : {0.3f, 3.0f}) {
    SamplingOptions options = Plain(temperature);
    options.top_p = 0.75f;
    EXPECT_EQ(Support(kFive, options), (std::vector<Token>{0, 2, 4})) << temperature;
  }
  // And top-p looks at what top-k left: 0.4 / 0.7 and 0.3 / 0.7.
  SamplingOptions options = Plain(1.0f);
  options.top_k = 2;
  options.top_p = 0.55f;
  EXPECT_EQ(Support(kFive, options), (std::vector<Token>{2}));
}

// Fixed for ever: a seed must mean the same choices in every version and on every platform.
TEST(Sampling, ChoicesOfASeedAreFixed) {
  std::vector<float> logits(26);
  for (int i = 0; i < 26; ++i) logits[i] = static_cast<float>(i % 7) * 0.5f;
  const auto text = [&](const SamplingOptions& options) {
    std::string out;
    for (uint64_t i = 0; i < 24; ++i) out += static_cast<char>('a' + Sample(logits, options, i));
    return out;
  };
  EXPECT_EQ(text(Plain(1.0f, 1)), "tzwmmdctukfemtfnlkscggmn");
  EXPECT_EQ(text(Plain(1.0f, 2)), "ezeduuzzuzumtfxnnffngtfu");
  SamplingOptions defaults{.temperature = 0.8f, .seed = 42};
  EXPECT_EQ(text(defaults), "lnnugdnsutnffftngfgejgmt");
}

TEST(Sampling, DegenerateLogits) {
  EXPECT_EQ(Sample(std::vector<float>{-INFINITY, -INFINITY}, Plain(1), 0), 0);
  EXPECT_EQ(Sample(std::vector<float>{0, INFINITY, 1}, Plain(1), 0), 1);
  for (uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(Sample(std::vector<float>{NAN, 1, -INFINITY}, Plain(1), i), 1);
  EXPECT_EQ(Sample(std::vector<float>{7}, Plain(1), 3), 0);
  // Very low temperature: no overflow, the most likely token.
  EXPECT_EQ(Sample(std::vector<float>{1, 2, 300}, Plain(1e-6f), 3), 2);
}

TEST(Sampling, LogProb) {
  EXPECT_NEAR(LogProb(kFive, 2), std::log(0.4), 1e-6);
  EXPECT_NEAR(LogProb(kFive, 1), std::log(0.04), 1e-6);
  const auto logits = RandomLogits(8, 1000);
  double sum = 0;
  for (Token t = 0; t < 1000; ++t) sum += std::exp(LogProb(logits, t));
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_NEAR(LogProb(std::vector<float>{1000, 0}, 1), -1000, 1e-9);
}

TEST(Sampling, OptionsAreChecked) {
  EXPECT_TRUE(CheckSampling({}).ok());
  EXPECT_TRUE(CheckSampling(Plain(2)).ok());
  for (const SamplingOptions& bad :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = NAN},
        SamplingOptions{.top_p = 0}, SamplingOptions{.top_p = 1.5f}, SamplingOptions{.top_p = NAN},
        SamplingOptions{.min_p = -0.1f}, SamplingOptions{.min_p = 2}})
    EXPECT_EQ(CheckSampling(bad).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvgraft::session
