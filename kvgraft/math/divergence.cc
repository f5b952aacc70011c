#include "kvgraft/math/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvgraft::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log(sum(exp(x))), in double.
double LogSumExp(std::span<const float> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(double{v} - largest);
  return largest + std::log(sum);
}

}  // namespace

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  if (p_logits.size() != q_logits.size() || p_logits.empty()) return kInfinity;
  const double log_p = LogSumExp(p_logits), log_q = LogSumExp(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double lp = double{p_logits[i]} - log_p;
    const double p = std::exp(lp);
    if (p > 0) kl += p * (lp - (double{q_logits[i]} - log_q));
  }
  if (std::isnan(kl)) return kInfinity;
  return std::max(kl, 0.0);  // rounding may leave it a little below
}

}  // namespace kvgraft::math
