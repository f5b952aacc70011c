// `eval offset`: eval's measurement with this machine's profile, its table and its JSON.
#pragma once

#include <string>
#include <vector>

#include "kvgraft/app/runtime.h"
#include "kvgraft/eval/offset.h"

namespace kvgraft::app {

struct EvalOffsetOptions {
  std::vector<engine::Pos> offsets;  // empty: 1, 8, 128, 1024, 3000, or 8 and 1024 when quick
  uint32_t n_texts = 0;              // 0: 8, or 2 when quick
  uint64_t seed = 1;
  bool quick = false;
  std::string texts_dir;  // further texts
  std::string out;        // the object and all items, as JSON
  std::string items;      // a line of JSON for each text and offset
  std::string model;      // as the user named it
};

struct EvalOffsetOutcome {
  std::vector<eval::OffsetSummary> offsets;
  std::vector<eval::OffsetItem> items;
  eval::OffsetOptions options;  // as used
  std::string model;
  double total_ms = 0;
  // A moved graft is as near to the text computed there as the model's own drift, and not farther
  // than the engine's K-shift, at every offset: mean KL at most `kOwnDrift` times the former, and
  // the mean paired difference to the latter at most two of its standard errors. Up to kSameKl,
  // two are the same.
  bool holds = false;
};
inline constexpr double kOwnDrift = 1.1, kSameKl = 1e-6;

Result<EvalOffsetOutcome> RunEvalOffset(Runtime& runtime, const EvalOffsetOptions& options);

// An object as text: one entry per offset, with one entry per arm and the number of scored tokens.
std::string EvalOffsetJson(const EvalOffsetOutcome& outcome);

}  // namespace kvgraft::app
