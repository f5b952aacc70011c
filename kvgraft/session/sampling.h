// Choosing the next token from F32 logits: greedy, temperature, top-k, top-p, min-p, seed. The
// order is llama.cpp's default (top-k, top-p, min-p, temperature); the random numbers are our own
// (a counter-based generator), so a seed gives the same choices in every build and version.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvgraft/core/status.h"
#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

struct SamplingOptions {
  float temperature = 0;  // 0: greedy (lowest token id among equal logits)
  int32_t top_k = 40;     // <= 0: all
  float top_p = 0.95f;    // 1: off
  float min_p = 0.05f;    // 0: off
  uint64_t seed = 0;
};

Status CheckSampling(const SamplingOptions& options);

// The choice depends only on the logits, the options and `index` (number of the token in the
// generation), never on how many rows were verified at a time.
engine::Token Sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

// Natural-log probability of `token` under softmax(logits), in double.
double LogProb(std::span<const float> logits, engine::Token token);

}  // namespace kvgraft::session
