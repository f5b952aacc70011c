// The file that `prove --out` keeps: the settings, a summary, and all figures of every sample. It
// is written after each sample, so that an interrupted proof goes on where it stopped.
#pragma once

#include <string>

#include "kvgraft/app/prove.h"

namespace kvgraft::app {

// What the samples depend on. Two runs with equal settings give equal samples.
struct ProofSettings {
  std::string profile;    // ExactProfile::key: model, engine build, processor, cache types ...
  std::string attention;  // "plain" or "flash"
  uint32_t row_quantum = 0;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;
  std::string texts;  // SHA-256 over the further texts, "" without any
  bool other_process = true;
};

// An object as text, with the fields that scripts read: samples, identical, kl_max ... Infinite
// figures as null.
std::string ProofSummary(const ProveOutcome& outcome);

// Replaces the file at `path`. `model` as the user named it.
Status WriteProof(const std::string& path, const std::string& model, const ProofSettings& settings,
                  const ProveOutcome& outcome);

// Reads the samples, the time and the skipped samples of a proof back into `outcome`. kMismatch,
// with the first field that differs and both values, for a proof with other settings; kCorrupt for
// anything that WriteProof does not write; kNotFound.
Status ReadProof(const std::string& path, const ProofSettings& settings, ProveOutcome* outcome);

}  // namespace kvgraft::app
