// State to artifact and back. Capture computes by the padding rule, takes the engine's image, and
// records a probe; Graft verifies everything before the engine sees a byte, restores, and proves on
// the first restore in a process that this build and machine give the recorded logits.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/engine/engine.h"
#include "kvgraft/session/image_buffer.h"

namespace kvgraft::session {

// The suffix of 7 tokens and the single token of every probe, for a vocabulary of n_vocab tokens
// (docs/format.md): x_0 = 0x9E3779B9, x_{i+1} = (1664525 x_i + 1013904223) mod 2^32, and token i is
// x_{i+1} mod n_vocab for i = 0 .. 7; the last is the single one.
inline constexpr size_t kProbeSuffixTokens = 7;
inline constexpr size_t kProbeTokens = kProbeSuffixTokens + 1;
artifact::Probe ProbeTokens(size_t n_vocab);

// Decodes the tokens of `probe` at the context's n_past (the suffix padded, then the single token
// alone), fills in the hashes and single_threads, and cuts the context back to where it was. Fails
// with kExhausted, before anything is computed, if the tokens do not fit. After another failure the
// context is cut back too, or empty where it cannot be.
Status RunProbe(engine::Context& context, artifact::Probe* probe);

// How many of an artifact's last tokens have their loss recorded (Manifest::tail_loss): enough for
// a mean, and with the row before them one batch of outputs.
inline constexpr size_t kTailLossTokens = 32;

struct CaptureRequest {
  std::vector<engine::Token> tokens;
  std::string text, name, parent;
  std::string prompt_kind = "raw", prompt_suffix;
  bool probe = true;
  bool tail_loss = true;           // record the loss of the last tokens
  bool verified_schedule = false;  // the self-test held: goes to ScheduleInfo::verified
  std::string producer;
};

struct Captured {
  artifact::Parts parts;  // manifest.id included
  ImageBuffer image;      // of an empty sequence when n_image_tokens is 0
  double prefill_ms = 0;  // decoding the tokens
  double image_ms = 0;    // taking the image, and waiting for its identity
  double probe_ms = 0;
  // Less than all when the context held a prefix already; what tail_loss decodes again is not in.
  uint64_t tokens_computed = 0;
};

// Computes what is missing and captures. The context must hold a prefix of request.tokens that was
// computed exactly: n_past() tokens (0 after Clear). The image covers the largest multiple of the
// model's state_alignment, taken when the context holds exactly these tokens; the context ends up
// holding all tokens. The probe is left out (empty hashes) where its 8 tokens do not fit.
//
// tail_loss needs the logits before each of the last kTailLossTokens tokens. A context that holds
// some of these tokens already is cut back to decode them again: the same bits, by the padding
// rule. Where it cannot be cut (a restored sliding window), or the padding rule does not hold here
// (verified_schedule false), the loss of as many tokens is recorded as are decoded anyway.
// Errors: kUnsupported (this model's state cannot be captured), kInvalidArgument (no tokens, tokens
// outside the vocabulary, a context that is longer than the request), kExhausted.
Result<Captured> Capture(engine::Context& context, const engine::Model& model,
                         const CaptureRequest& request, const engine::Progress& progress = {});

enum class ProbePolicy { kFirstInProcess, kAlways, kNever };

struct ProbeVerdict {
  bool identical = false;
  std::string reason;  // what differed; "" if identical
};

// What the probes of this process have found so far, by LedgerKey: one object for all grafts of a
// process, so only the first of a kind pays for its probe. Safe to use from several threads.
class ProbeLedger {
 public:
  std::optional<ProbeVerdict> Find(const std::string& key) const;
  void Record(const std::string& key, ProbeVerdict verdict);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ProbeVerdict> verdicts_;
};

// SHA-256 over the compat identity and the build fields of both sides: artifacts with equal keys
// need one probe only.
std::string LedgerKey(const StateIdentity& artifact, const StateIdentity& here);

struct GraftOptions {
  ProbePolicy probe = ProbePolicy::kFirstInProcess;
  ProbeLedger* ledger = nullptr;   // for kFirstInProcess; null: every graft counts as the first
  unsigned verify_threads = 0;     // 0: the machine's cores
  bool verified_schedule = false;  // the self-test holds here
};

// Tiers that Graft gives to an artifact whose own tier is "exact" (others pass through):
//   exact                the self-test holds for the capture and here, and either all build fields
//                        are equal or the probe has reproduced the recorded logits
//   exact-build-differs  the state is bit for bit what was captured; continuations are not proven
//                        to have the bits of a cold run here (another build, or the probe differs)
//   restored             the state is bit for bit what was captured, but a cold run is not known to
//                        give the same bits: no row quantum was found, or the self-test did not run
struct Grafted {
  std::string tier;
  std::string tier_reason;  // why not "exact", or why "exact" although the build differs
  std::vector<IdentityDiff> build_diffs;
  uint64_t tokens_reused = 0;    // from the image
  uint64_t tokens_computed = 0;  // decoded again after it (alignment)
  bool probed = false;           // by this call
  bool probe_identical = false;  // of this call's probe, or an earlier one in the ledger
  double verify_ms = 0, load_ms = 0, tail_ms = 0, probe_ms = 0;
  double restore_ms() const { return verify_ms + load_ms; }
};

// Puts the artifact into the context, replacing what it holds. Order: identity (naming the fields),
// tokens and positions, context size, page checksums, CheckImage, LoadImage, tail tokens, probe.
// Until LoadImage the context is as it was; afterwards an error leaves it empty and usable. On
// success n_past() is the artifact's number of tokens.
// Errors: kMismatch, kExhausted (context too small), kCorrupt, kUnsupported, kCancelled.
Result<Grafted> Graft(engine::Context& context, const engine::Model& model,
                      const artifact::Reader& artifact, const GraftOptions& options = {},
                      const engine::Progress& progress = {});

// Recomputes the image's tokens from nothing and compares with the artifact's image, byte for byte.
// Identity, size and page checksums are checked first, as by Graft. The context ends up holding the
// image's tokens.
struct Recomputed {
  bool identical = false;
  uint64_t first_difference = 0;  // byte offset in the image; meaningless if identical
  double prefill_ms = 0;
};
Result<Recomputed> Recompute(engine::Context& context, const engine::Model& model,
                             const artifact::Reader& artifact,
                             const engine::Progress& progress = {});

}  // namespace kvgraft::session
