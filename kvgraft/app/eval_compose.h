// `eval compose`: eval's measurement with this machine's profile and the model's drift gate.
#pragma once

#include <string>
#include <vector>

#include "kvgraft/app/runtime.h"
#include "kvgraft/eval/compose.h"

namespace kvgraft::app {

struct EvalComposeOptions {
  std::vector<uint32_t> link_tokens;  // empty: 0, 4, 16, 32, 64, or 0 and the default when quick
  uint32_t samples = 0;               // questions, chosen by the seed; 0: all, or 12 when quick
  uint64_t seed = 1;
  bool quick = false;
  // Verdicts of the drift gate for the links whose calibration is kept, and for the default number,
  // which is calibrated if it is not; false: no verdicts, and no calibration.
  bool gate = true;
  std::string data;     // questions, a line of JSON each; empty: built-in ones
  std::string out;      // the object, as JSON
  std::string items;    // a line of JSON for each question, written as they are done
  bool resume = false;  // go on with the questions that `items` has
  std::string model;    // as the user named it
};

struct EvalComposeOutcome {
  std::vector<eval::ComposeSummary> summaries;
  std::vector<eval::ComposeItem> items;
  std::vector<session::DriftRecord> gates;
  std::string model, data_sha256;  // "" for the built-in questions
  std::vector<uint32_t> link_tokens;
  uint64_t seed = 1;
  uint32_t questions = 0;  // of them, the items are the first
  double total_ms = 0;     // of this run
};

// kMismatch: `items` to resume has other settings. When interrupted, `items` holds what was done.
Result<EvalComposeOutcome> RunEvalCompose(Runtime& runtime, const EvalComposeOptions& options);

// An object as text: one entry per arm and kind of question, with the number of items.
std::string EvalComposeJson(const EvalComposeOutcome& outcome);

}  // namespace kvgraft::app
