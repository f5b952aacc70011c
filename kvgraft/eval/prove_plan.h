// What one sample of a proof does: length, arm, split, disturbances. Depends on seed and index
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvgraft/core/random.h"

namespace kvgraft::eval {

// Tokens first .. first+count-1, in one call or each alone.
struct Step {
  uint32_t first = 0, count = 0;
  bool one_by_one = false;
  bool operator==(const Step&) const = default;
};

struct SamplePlan {
  uint32_t index = 0, n_tokens = 0, n_parts = 0, n_threads = 1, n_single = 0;
  std::string arm;                   // as ProveSample::arm
  bool new_process_skipped = false;  // its turn, but limits.new_process is false
  uint32_t n_captured = 0;           // tokens of the artifact; 0 for "split", always < n_tokens
  std::vector<Step> head, rest;      // tokens 0 .. n_captured-1, and the others
  uint64_t text_seed = 0, disturb_seed = 0;
};

struct PlanLimits {
  uint32_t min_tokens = 33, max_tokens = 2048;
  uint32_t max_threads = 2;  // 1 .. n threads are used
  uint32_t alignment = 1;    // the model's state_alignment
  bool new_process = true;
};

// limits.min_tokens >= 2.
SamplePlan PlanSample(uint64_t seed, uint32_t index, const PlanLimits& limits);

inline constexpr uint32_t kMaxSingles = 48;  // tokens decoded one by one in a sample
inline constexpr uint32_t kMaxParts = 6;

}  // namespace kvgraft::eval
