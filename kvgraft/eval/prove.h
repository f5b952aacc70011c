// The proof behind "exact": many random ways of arriving at a state, each compared in every bit
// with one cold prefill. And, beside it, how far the engine's ordinary batching differs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/engine/engine.h"
#include "kvgraft/math/divergence.h"

namespace kvgraft::eval {

struct ProveOptions {
  uint32_t samples = 100;
  uint32_t first_sample = 0;  // go on after samples that are done: 0 .. samples
  uint64_t seed = 1;
  uint32_t min_tokens = 33, max_tokens = 2048;  // max is lowered to what the model's window takes
  uint32_t generate_tokens = 32;                // 0 .. 256
  engine::ContextOptions context;  // the profile's attention and quantum; n_ctx is set here
  std::vector<std::string> texts;  // further natural documents, beside the built-in corpus
  // Runs a restore request (restore_request.h) in another process on the same model and returns
  // RunRestoreRequest's answer; unset: the "restore-new-process" arm becomes
  // "restore-new-context", and the report counts how often.
  std::function<Result<std::string>(const std::string& request_json)> other_process;
  std::string temp_dir;  // private folder for its artifact files; needed with it
};

// One sample. Arms, by turns:
//   split                 the prompt in parts, partly token by token
//   restore               a part of the prompt computed so and captured, restored in the same
//                         context after another conversation, the rest decoded in parts
//   restore-new-context   the same into a new context of this process
//   restore-new-process   the same through an artifact file by another process
// In all of them padding rows carry random content, and unrelated traffic runs between the parts.
struct ProveSample {
  uint32_t index = 0, n_tokens = 0, n_parts = 0, n_threads = 0, n_single = 0;
  uint32_t n_restored = 0;  // tokens from the image; 0 for "split"
  std::string arm;
  std::string tier;                    // of the graft, probe included; "" for "split"
  bool state_identical = false;        // image after the prompt
  bool logits_identical = false;       // F32 logits of the last prompt token
  bool generation_identical = false;   // every greedy token is the cold run's choice
  bool final_state_identical = false;  // image after the generated tokens
  double kl = 0, max_abs_logit_diff = 0;
  // The same split by the engine's ordinary batching (kFast, the last token alone) against the
  // cold run.
  double ordinary_max_abs_logit_diff = 0, ordinary_kl = 0;
  bool ordinary_state_identical = false;
  bool identical() const {
    return state_identical && logits_identical && generation_identical && final_state_identical;
  }
};

struct ProveReport {
  std::vector<ProveSample> samples;
  uint32_t new_process_skipped = 0;  // samples whose turn it was, without other_process
  uint32_t n_identical() const;
  double kl_max() const;
  double max_abs_logit_diff() const;
  double ordinary_max_abs_logit_diff() const;
};

// A sample depends on the options and its index only, so a proof can be continued. Costs a sample
// of n tokens about 4 n prefilled tokens and generate_tokens steps; n is log-uniform, after the
// first samples, which take the lengths at which kernels and cache blocks change (63 .. 513).
// Returning false from `on_sample` ends the proof early with what there is.
// A difference is a result, not an error; errors are the engine's, of files, and kInvalidArgument.
using SampleDone = std::function<bool(const ProveSample&, size_t done, size_t total)>;
Result<ProveReport> Prove(engine::Model& model, const ProveOptions& options,
                          const SampleDone& on_sample = {});

// One line of JSON with the fields of a sample and "identical"; infinities as null. FromJson:
// kCorrupt for anything else.
std::string SampleToJson(const ProveSample& sample);
Result<ProveSample> SampleFromJson(std::string_view json);

using math::KlDivergence;
// Largest absolute difference; infinite if one is NaN.
double MaxAbsDifference(std::span<const float> a, std::span<const float> b);

}  // namespace kvgraft::eval
