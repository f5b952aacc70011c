// The gate of composed states. An attached artifact lacks attention to what stands before it, and
// how much that costs depends on the model: so its last tokens are decoded natively in their new
// place, and their loss is compared with the loss recorded when the artifact was captured
// (Manifest::tail_loss). A state that is broken predicts its own text worse. How much worse is too
// much is found by trial for each model, configuration and number of link tokens: good compositions
// against deliberately broken ones, on built-in text. Where that does not tell them apart, nothing
// is composed. docs/adr/0008-a-gate-for-composed-states.md.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/engine/engine.h"
#include "kvgraft/session/capture.h"
#include "kvgraft/session/compose.h"

namespace kvgraft::session {

inline constexpr size_t kHeldTokens = kTailLossTokens;
inline constexpr size_t kMinHeldTokens = 16;    // fewer give a mean of noise
inline constexpr double kGoodPassed = 0.95;     // of good compositions, by the choice of threshold
inline constexpr double kHarmfulCaught = 0.90;  // of harmful ones, or composing stays off
inline constexpr double kHarmFactor = 2;        // see DriftRecord
inline constexpr size_t kMinHarmful = 10;       // fewer say nothing

// One composition of the calibration. Kinds: "good"; "unrotated" (keys not turned),
// "wrong-distance" (turned too far), "foreign-cells" (of another text), "foreign-link" (link tokens
// of another text).
struct DriftTrial {
  std::string kind;
  double delta = 0;  // mean loss of the held tokens, composed minus captured, in nats
  double kl = -1;    // mean KL(exact prefill || this) of the tokens that follow; below 0: not taken
  bool operator==(const DriftTrial&) const = default;
};

// What a model's calibration has found. A broken composition is called harmful when its KL is above
// kHarmFactor times what kGoodPassed of the good ones stay below: what does no harm (link tokens of
// another text do about as much as none) needs no catching.
struct DriftRecord {
  bool usable = false;
  std::string reason;  // why not usable
  double threshold = 0;
  uint32_t link_tokens = 0, held_tokens = kHeldTokens;
  uint32_t n_good = 0, good_passed = 0;
  uint32_t n_bad = 0, bad_caught = 0;
  uint32_t n_harmful = 0, harmful_caught = 0;
  double good_kl = 0;  // mean of the good ones
  double harm_kl = 0;  // above: harmful
  std::vector<DriftTrial> trials;
  std::string key, created;  // DriftKey; UTC
  std::string keep_error;    // the record could not be kept, and why
};

// Threshold and verdict from trials. Pure.
DriftRecord ChooseThreshold(std::vector<DriftTrial> trials);

// What the gate says of one attached artifact.
struct GateVerdict {
  bool judged = false;  // both losses were there
  bool passed = false;
  double delta = 0, threshold = 0;  // nats; meaningless unless judged
  uint32_t held_tokens = 0;         // compared
  std::string reason;               // why not passed
};

// Compares the mean of the last tokens that both have. Fewer than kMinHeldTokens, or losses that
// are not finite, are not judged and do not pass. Pure.
GateVerdict Judge(const DriftRecord& record, std::span<const uint64_t> stored_micronats,
                  std::span<const double> composed_nats);

struct DriftOptions {
  engine::ContextOptions context;  // the profile's; n_ctx is set here
  uint32_t chunk_tokens = 128;
  uint32_t n_chunks = 10;
  uint32_t n_pairs = 10;    // composed well and in each wrong way, with KL
  uint32_t n_further = 14;  // composed well only, without KL
  uint32_t n_scored = 16;   // tokens that KL is taken over
  uint64_t seed = 1;
};

// One record for each number of link tokens; texts and exact prefills are shared. Costs about
// n_chunks chunks, n_pairs prefills of a chunk, and for each number of link tokens
// 5 n_pairs + n_further times link + 49 tokens. `progress` counts compositions.
// Errors: kUnsupported (states without planes), kCancelled, the engine's.
Result<std::vector<DriftRecord>> CalibrateDrift(engine::Model& model, const DriftOptions& options,
                                                std::span<const uint32_t> link_tokens,
                                                const engine::Progress& progress = {});

// SHA-256 of what a record depends on beside the link tokens: the compat identity.
std::string DriftKey(const StateIdentity& identity);
std::string DriftRecordPath(const std::string& dir, const std::string& key, uint32_t link_tokens);

std::string DriftRecordToJson(const DriftRecord& record);
// kCorrupt unless all fields are there and possible.
Result<DriftRecord> DriftRecordFromJson(std::string_view json);

// The kept record. kNotFound: not calibrated; kCorrupt.
Result<DriftRecord> LoadDriftRecord(const std::string& dir, const std::string& key,
                                    uint32_t link_tokens);
// All kept records of one key, by link tokens.
std::vector<DriftRecord> LoadDriftRecords(const std::string& dir, const std::string& key);

// Loads the kept records from `dir`, and calibrates and keeps those that are missing or cannot be
// read. `on_run` is told before that starts.
Result<std::vector<DriftRecord>> LoadOrCalibrateDrift(
    engine::Model& model, const StateIdentity& identity, const DriftOptions& options,
    std::span<const uint32_t> link_tokens, const std::string& dir,
    const std::function<void()>& on_run = {}, const engine::Progress& progress = {});

struct ComposeRequest {
  // What the context does not hold yet, in order, and the whole sequence with what it does hold.
  std::vector<const artifact::Reader*> artifacts;
  std::span<const engine::Token> tokens;
  AttachOptions attach;               // held_tokens is set here
  const DriftRecord* gate = nullptr;  // null: no gate, nothing is held against anything
  // What the context holds has the bits of a cold run. Otherwise a fallback computes it again.
  bool exact_start = true;
  // For a fallback after something was attached: puts such a start back into the cleared context.
  // Unset: all of the sequence is computed.
  std::function<Status(engine::Context&)> restart;
};

struct Composed {
  std::vector<Attached> attached;     // up to the one that did not pass
  std::vector<GateVerdict> verdicts;  // of each attached artifact; empty without a gate
  bool fell_back = false;  // the state is the exact prefill of the sequence, not composed
  std::string reason;      // why
  uint64_t tokens_reused = 0, tokens_computed = 0;  // without what the context held at first
  double fallback_ms = 0;
};

// Attaches the artifacts, judging each. When the gate says no (or has nothing to compare with, or
// is not usable) the context ends up with the sequence's exact prefill instead. After an error the
// context is empty, or as it was where Attach says so.
Result<Composed> Compose(engine::Context& context, const engine::Model& model,
                         const ComposeRequest& request, const engine::Progress& progress = {});

}  // namespace kvgraft::session
