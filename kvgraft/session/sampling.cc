#include "kvgraft/session/sampling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kvgraft/core/random.h"

namespace kvgraft::session {
namespace {

using engine::Token;

struct Candidate {
  float logit;
  Token token;
};

// Most likely first; the lower id first among equals, so that the order is total.
bool Before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// NaN counts as impossible: comparisons with it would leave the order undefined.
float Ordered(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

Token Greedy(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (Ordered(logits[i]) > Ordered(logits[best])) best = i;
  }
  return static_cast<Token>(best);
}

// The top_k (<= 0: all) most likely tokens, in order.
std::vector<Candidate> TopK(std::span<const float> logits, int32_t top_k) {
  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) all[i] = {Ordered(logits[i]), static_cast<Token>(i)};
  const size_t k = top_k <= 0 ? all.size() : std::min(all.size(), static_cast<size_t>(top_k));
  if (k < all.size()) {
    std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(k), all.end(), Before);
    all.resize(k);
  }
  std::sort(all.begin(), all.end(), Before);
  return all;
}

// exp((logit - largest) / temperature) of each candidate, and their sum.
std::vector<double> Weights(const std::vector<Candidate>& candidates, double temperature,
                            double* sum) {
  std::vector<double> weights(candidates.size());
  *sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double below = double{candidates[i].logit} - double{candidates[0].logit};
    weights[i] = std::exp(below / temperature);
    *sum += weights[i];
  }
  return weights;
}

// How many of the ordered candidates top-p and then min-p keep; at least one.
size_t CountKept(const std::vector<Candidate>& candidates, const SamplingOptions& options) {
  double sum = 0;
  const std::vector<double> weights = Weights(candidates, 1.0, &sum);
  size_t kept = candidates.size();
  if (options.top_p < 1.0f) {
    double mass = 0;
    kept = 0;
    while (kept < candidates.size() && mass < double{options.top_p} * sum) mass += weights[kept++];
  }
  // weights[0] is 1, so a weight is the probability relative to the most likely token's.
  while (kept > 1 && weights[kept - 1] < double{options.min_p}) --kept;
  return std::max<size_t>(kept, 1);
}

}  // namespace

Status CheckSampling(const SamplingOptions& options) {
  const auto invalid = [](const std::string& what, float got) {
    return Status(Code::kInvalidArgument, "sampling: " + what + ", got " + std::to_string(got));
  };
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    return invalid("temperature must be 0 (greedy) or a positive number", options.temperature);
  if (!(options.top_p > 0 && options.top_p <= 1))
    return invalid("top_p must be above 0 and at most 1 (off)", options.top_p);
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return invalid("min_p must be between 0 (off) and 1", options.min_p);
  return Status::Ok();
}

Token Sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index) {
  KVG_CHECK(!logits.empty());
  if (options.temperature <= 0) return Greedy(logits);
  std::vector<Candidate> candidates = TopK(logits, options.top_k);
  if (!std::isfinite(candidates[0].logit)) return candidates[0].token;  // no distribution
  candidates.resize(CountKept(candidates, options));
  double sum = 0;
  const std::vector<double> weights = Weights(candidates, double{options.temperature}, &sum);
  // Number `index` of the SplitMix64 stream that starts at the seed.
  const double target = Random(options.seed + index * 0x9e3779b97f4a7c15ull).Unit() * sum;
  double mass = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    mass += weights[i];
    if (target < mass) return candidates[i].token;
  }
  return candidates.back().token;  // rounding at the very end
}

double LogProb(std::span<const float> logits, Token token) {
  KVG_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  double max = -INFINITY;
  for (float l : logits) max = std::max(max, double{Ordered(l)});
  if (!std::isfinite(max)) return -INFINITY;
  double sum = 0;
  for (float l : logits) sum += std::exp(double{Ordered(l)} - max);
  return double{Ordered(logits[static_cast<size_t>(token)])} - max - std::log(sum);
}

}  // namespace kvgraft::session
