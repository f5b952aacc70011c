// Finds, by trial on this machine, backend and model, the attention mode and the row quantum for
// which the state and the logits do not depend on how a prompt is split: never assumed. The result
// is kept by everything that it may depend on, and asked for again when any of that changes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

// One configuration against one cold decode of the whole text: n_splits splits, the first into 1,
// 2, 3 ... quanta, the others random, and last a restore of an image into a new context. Compared
// are the image's bytes and the logits of the last up to 8 tokens, asked for at once and one by
// one.
struct Trial {
  std::string attention;  // "flash" or "plain"
  uint32_t row_quantum = 0;
  uint32_t splits = 0;     // tried, the restore included
  uint32_t identical = 0;  // of these, with identical state and logits
  bool restore_tried = false, restore_identical = false;
  double max_abs_logit_diff = 0;
  double prefill_tokens_per_s = 0;
  std::string error;  // this configuration does not run ("flash attention needed ...")
};

struct ExactProfile {
  bool holds = false;  // some configuration is invariant
  engine::Attention attention = engine::Attention::kOff;
  uint32_t row_quantum = 8;  // of the chosen configuration; meaningless unless holds
  uint32_t n_tokens = 0;     // length of the test text
  std::vector<Trial> trials;
  std::string key;         // of what it depends on, see ProfileKey; set by LoadOrRunDoctor
  std::string created;     // UTC, "2026-11-30T16:24:09Z"
  std::string keep_error;  // LoadOrRunDoctor could not keep it, and why: the next use runs again
};

struct DoctorOptions {
  engine::ContextOptions context;  // attention kAuto: both are tried; cache types are kept
  // Ascending; those that divide n_ubatch are tried.
  std::vector<uint32_t> quanta = {2, 4, 8, 16, 32, 64};
  uint32_t n_tokens = 330;  // crosses the 256-cell border; at least 24
  uint32_t n_splits = 4;    // per configuration, each also with random padding content
  bool exhaustive = false;  // report every configuration instead of stopping at the first
  uint64_t seed = 1;
};

// What a profile depends on, as SHA-256: the compat identity (model, cache types ...) without the
// fields that follow from the attention mode, the build identity (engine, processor features), the
// attention mode asked for and the physical batch size.
std::string ProfileKey(const StateIdentity& identity, const engine::ContextOptions& options);

// Tries configurations in order of preference, by quantum (fewer rows to pad), then attention off
// before on (cheaper on CPUs), and takes the first that holds: every split and the restore
// identical. A configuration ends at its first mismatch unless `exhaustive`; one that does not run
// keeps its error. Fails when none runs, with the first error, and with kCancelled.
// `progress` counts trials: (done, of all configurations).
Result<ExactProfile> RunDoctor(engine::Model& model, const DoctorOptions& options,
                               const engine::Progress& progress = {});

// An object with the fields above. From JSON: kCorrupt unless all of them are there and possible.
std::string ProfileToJson(const ExactProfile& profile);
Result<ExactProfile> ProfileFromJson(std::string_view json);

// Loads the kept profile from `dir` (<key>.json), or runs the self-test and keeps it there; an
// unreadable file, or one for another key, is run again and replaced. `exhaustive` always runs.
// `on_run` is told before a test starts ("first use of this model here: ...").
Result<ExactProfile> LoadOrRunDoctor(engine::Model& model, const DoctorOptions& options,
                                     const std::string& dir,
                                     const std::function<void()>& on_run = {},
                                     const engine::Progress& progress = {});

}  // namespace kvgraft::session
