// How far one distribution over tokens is from another.
#pragma once

#include <span>

namespace kvgraft::math {

// KL(p || q) of two rows of logits, in nats, accumulated in double. Infinite if a logit is NaN.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace kvgraft::math
