// `verify` and `diff`: what an artifact is, and in what two artifacts differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvgraft/app/runtime.h"
#include "kvgraft/artifact/artifact.h"
#include "kvgraft/store/store.h"

namespace kvgraft::app {

struct VerifyOptions {
  bool recompute = false;  // needs a model: prefill the tokens again and compare the bytes
};

struct VerifyReport {
  store::Entry entry;
  uint64_t pages = 0;
  // With recompute:
  std::optional<bool> recomputed_identical;
  uint64_t first_difference = 0;        // byte of the image
  std::optional<bool> probe_identical;  // of the restored state
  std::string tier, tier_reason;
  std::vector<IdentityDiff> build_diffs;
  double verify_ms = 0, prefill_ms = 0;
  bool ok() const { return recomputed_identical.value_or(true); }
};

// Checks header, tables, every page and the content identity; what fails goes to quarantine and is
// kCorrupt. A recomputation that differs is no error here: see ok().
Result<VerifyReport> RunVerify(Runtime& runtime, const std::string& ref,
                               const VerifyOptions& options);

// One side of a diff.
struct DiffSide {
  std::string label;
  std::string id;  // "" for a model and configuration
  uint64_t n_tokens = 0;
};
struct TokenDifference {
  uint64_t index = 0;
  std::optional<int32_t> a, b;  // nullopt: that side ends here
  std::string a_text, b_text;   // empty without a model
};
struct DiffReport {
  DiffSide a, b;
  bool against_model = false;
  std::vector<IdentityDiff> compat, build;  // .artifact is a, .here is b
  uint64_t common_prefix_tokens = 0;
  std::optional<TokenDifference> first_token;
  bool image_compared = false, image_identical = false;
  std::optional<uint64_t> first_image_byte;
  uint64_t image_bytes_a = 0, image_bytes_b = 0;
  bool identical() const { return compat.empty() && !first_token && image_identical; }
  bool compatible() const { return compat.empty(); }
};

// Two artifacts; or, with `ref_b` empty, one artifact against -m and the configuration.
Result<DiffReport> RunDiff(Runtime& runtime, const std::string& ref_a, const std::string& ref_b);

}  // namespace kvgraft::app
