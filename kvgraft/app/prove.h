// `prove`: eval's proof with this machine's profile, texts from a folder, and the arm that restores
// in another process, which is this program with the hidden verb prove-restore.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvgraft/app/runtime.h"
#include "kvgraft/eval/prove.h"

namespace kvgraft::app {

struct ProveOptions {
  uint32_t samples = 100;
  uint64_t seed = 1;
  uint32_t max_tokens = 2048;
  std::string texts_dir;  // further texts; empty: the built-in corpus alone
  bool other_process = true;
  std::vector<std::string> model_args;  // -m and the other flags of the model, for the child
  // All figures of every sample, written after each (proof_file.h); empty: nowhere. `resume` goes
  // on with the samples that the file has, if it is there.
  std::string out;
  bool resume = false;
  std::string model;  // as the user named it, for the file
};

struct ProveOutcome {
  eval::ProveReport report;
  session::ExactProfile profile;
  engine::ContextOptions context;
  double total_ms = 0;
};
Result<ProveOutcome> RunProve(Runtime& runtime, const ProveOptions& options,
                              const eval::SampleDone& on_sample);

// The child's part: the request in, the answer out.
Result<std::string> RunProveRestore(Runtime& runtime, const std::string& request_json);

// Every regular file below `dir` that is UTF-8 text of up to 4 MiB, in the order of their paths;
// 64 MiB in all. kNotFound when there is none.
Result<std::vector<std::string>> ReadTexts(const std::string& dir);

}  // namespace kvgraft::app
