#include <algorithm>

#include "kvgraft/core/hash.h"
#include "kvgraft/core/stopwatch.h"
#include "kvgraft/session/artifact_checks.h"
#include "kvgraft/session/capture.h"

namespace kvgraft::session {
namespace {

using engine::Pos;
using engine::Schedule;
using engine::Token;

// Everything that can be refused without touching the context: order as the header says.
Status CheckArtifact(const engine::Context& context, const engine::Model& model,
                     const artifact::Reader& artifact, unsigned verify_threads) {
  KVG_RETURN(CheckCompat(artifact.manifest().identity, context.identity()));
  KVG_RETURN(CheckTokens(model, artifact));
  const uint64_t n = artifact.tokens().size();
  if (n > context.n_ctx()) {
    return Status(Code::kExhausted, "the artifact has " + std::to_string(n) +
                                        " tokens, the context takes " +
                                        std::to_string(context.n_ctx()) + "; use -c " +
                                        std::to_string(n + kProbeTokens) +
                                        " or more, plus room for the question and the answer");
  }
  return artifact.VerifyPages(ThreadsOr(verify_threads));
}

// Loads the image and decodes the tail. The caller clears the context after an error.
Status Restore(engine::Context& context, const artifact::Reader& artifact,
               const engine::Progress& progress, Grafted* out) {
  const std::span<const Token> tokens(artifact.tokens());
  const uint64_t n_image = artifact.manifest().n_image_tokens;
  Stopwatch clock;
  if (n_image > 0) {  // else the image is that of an empty sequence
    KVG_RETURN(context.LoadImage(artifact.image(), static_cast<Pos>(n_image)));
  } else {
    KVG_RETURN(context.Clear());
  }
  out->load_ms = clock.Ms();
  if (context.n_past() != static_cast<Pos>(n_image)) {
    return Status(Code::kInternal, "the engine holds " + std::to_string(context.n_past()) +
                                       " tokens after loading an image of " +
                                       std::to_string(n_image));
  }
  out->tokens_reused = n_image;

  clock = Stopwatch();
  if (n_image < tokens.size()) {
    KVG_RETURN(context.Decode(tokens.subspan(n_image), Schedule::kExact, 0, nullptr, progress));
  }
  out->tail_ms = clock.Ms();
  out->tokens_computed = tokens.size() - n_image;
  return Status::Ok();
}

Result<ProbeVerdict> CompareProbe(engine::Context& context, const artifact::Probe& recorded) {
  artifact::Probe here;
  here.suffix = recorded.suffix;
  here.single_token = recorded.single_token;
  KVG_RETURN(RunProbe(context, &here));
  if (here.padded_sha256 != recorded.padded_sha256) {
    return ProbeVerdict{false,
                        "the probe's padded logits differ: the kernels here give other bits"};
  }
  const bool same_path =
      !recorded.single_sha256.empty() && here.single_threads == recorded.single_threads;
  if (same_path && here.single_sha256 != recorded.single_sha256) {
    return ProbeVerdict{false, "the probe's single-row logits differ (padded ones are identical)"};
  }
  return ProbeVerdict{true, ""};
}

// Whether the recorded probe can be decoded here, and if not why.
std::string WhyNoProbe(const engine::Context& context, const engine::Model& model,
                       const artifact::Probe& probe) {
  if (!IsSha256Hex(probe.padded_sha256)) return "the artifact has no probe";
  const uint32_t n_vocab = model.info().n_vocab;
  const auto outside = [n_vocab](Token t) { return t < 0 || static_cast<uint32_t>(t) >= n_vocab; };
  if (probe.suffix.empty() || outside(probe.single_token) ||
      std::any_of(probe.suffix.begin(), probe.suffix.end(), outside)) {
    return "the artifact's probe has tokens outside the vocabulary";
  }
  if (static_cast<size_t>(context.n_past()) + probe.suffix.size() + 1 > context.n_ctx()) {
    return "the context has no room for the probe";
  }
  return "";
}

// Runs the probe as the policy asks. nullopt: neither run now nor known from before.
Result<std::optional<ProbeVerdict>> Probe(engine::Context& context, const engine::Model& model,
                                          const artifact::Reader& artifact,
                                          const GraftOptions& options, Grafted* out,
                                          std::string* why_not) {
  const artifact::Manifest& m = artifact.manifest();
  const bool use_ledger = options.ledger != nullptr && options.probe != ProbePolicy::kNever;
  const std::string key = use_ledger ? LedgerKey(m.identity, context.identity()) : "";
  if (use_ledger && options.probe == ProbePolicy::kFirstInProcess) {
    std::optional<ProbeVerdict> known = options.ledger->Find(key);
    if (known) return known;
  }
  *why_not = options.probe == ProbePolicy::kNever ? "the probe was not asked for"
                                                  : WhyNoProbe(context, model, m.probe);
  if (!why_not->empty()) return std::optional<ProbeVerdict>();
  Stopwatch clock;
  KVG_ASSIGN(ProbeVerdict verdict, CompareProbe(context, m.probe));
  out->probe_ms = clock.Ms();
  out->probed = true;
  if (use_ledger) options.ledger->Record(key, verdict);
  return std::optional<ProbeVerdict>(std::move(verdict));
}

std::string FieldNames(const std::vector<IdentityDiff>& diffs) {
  std::string names;
  for (const IdentityDiff& d : diffs) names += (names.empty() ? "" : ", ") + d.field;
  return names;
}

void DecideTier(const artifact::Manifest& m, const GraftOptions& options,
                const std::optional<ProbeVerdict>& verdict, const std::string& why_no_probe,
                Grafted* out) {
  const std::string fields = FieldNames(out->build_diffs);
  if (m.tier != "exact") {
    out->tier = m.tier;
  } else if (m.schedule.kind != "exact" || !m.schedule.verified || !options.verified_schedule) {
    out->tier = "restored";
    out->tier_reason = m.schedule.kind != "exact"
                           ? "the state was not computed by the padding rule"
                           : std::string("the self-test does not hold ") +
                                 (m.schedule.verified ? "here" : "where the state was captured") +
                                 ": the bits of a cold run depend on how a prompt is split";
  } else if (verdict && !verdict->identical) {
    out->tier = "exact-build-differs";
    out->tier_reason = verdict->reason;
    if (!fields.empty()) out->tier_reason += "; build fields that differ: " + fields;
  } else if (!fields.empty() && !verdict) {
    out->tier = "exact-build-differs";
    out->tier_reason = "build fields differ: " + fields + "; " + why_no_probe;
  } else {
    out->tier = "exact";
    if (!fields.empty()) {
      out->tier_reason =
          "build fields differ: " + fields + "; the probe's logits were reproduced bit for bit";
    }
  }
}

// Restores and proves; the caller clears the context after an error.
Result<Grafted> RestoreAndProbe(engine::Context& context, const engine::Model& model,
                                const artifact::Reader& artifact, const GraftOptions& options,
                                const engine::Progress& progress) {
  const artifact::Manifest& m = artifact.manifest();
  Grafted out;
  out.build_diffs = DiffBuild(m.identity, context.identity());
  KVG_RETURN(Restore(context, artifact, progress, &out));
  std::string why_no_probe;
  KVG_ASSIGN(const std::optional<ProbeVerdict> verdict,
             Probe(context, model, artifact, options, &out, &why_no_probe));
  out.probe_identical = verdict && verdict->identical;
  DecideTier(m, options, verdict, why_no_probe, &out);
  return out;
}

}  // namespace

std::optional<ProbeVerdict> ProbeLedger::Find(const std::string& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = verdicts_.find(key);
  if (it == verdicts_.end()) return std::nullopt;
  return it->second;
}

void ProbeLedger::Record(const std::string& key, ProbeVerdict verdict) {
  const std::lock_guard<std::mutex> lock(mutex_);
  verdicts_[key] = std::move(verdict);
}

std::string LedgerKey(const StateIdentity& artifact, const StateIdentity& here) {
  std::string text = "kvgraft probe ledger\n" + here.CompatId() + "\n";
  for (const StateIdentity* side : {&artifact, &here}) {
    for (const IdentityField& field : side->build) text += field.name + "=" + field.value + "\n";
    text += "\n";
  }
  return Sha256Hex(text);
}

Result<Grafted> Graft(engine::Context& context, const engine::Model& model,
                      const artifact::Reader& artifact, const GraftOptions& options,
                      const engine::Progress& progress) {
  Stopwatch clock;
  KVG_RETURN(CheckArtifact(context, model, artifact, options.verify_threads).Annotate("graft"));
  const uint64_t n_image = artifact.manifest().n_image_tokens;
  if (n_image > 0) {
    KVG_RETURN(context.CheckImage(artifact.image(), static_cast<Pos>(n_image)).Annotate("graft"));
  }
  const double verify_ms = clock.Ms();

  Result<Grafted> out = RestoreAndProbe(context, model, artifact, options, progress);
  if (!out.ok()) {
    // Whatever the engine left must not answer for another prompt (llama.cpp#27068).
    const Status cleared = context.Clear();
    if (!cleared.ok()) {
      return Status(Code::kInternal,
                    "graft: " + out.status().message() +
                        "; then the context could not be cleared: " + cleared.message());
    }
    return out.status().Annotate("graft");
  }
  out->verify_ms = verify_ms;
  return out;
}

Result<Recomputed> Recompute(engine::Context& context, const engine::Model& model,
                             const artifact::Reader& artifact, const engine::Progress& progress) {
  KVG_RETURN(CheckArtifact(context, model, artifact, 0).Annotate("recompute"));
  KVG_RETURN(context.Clear());
  const size_t n_image = artifact.manifest().n_image_tokens;
  Recomputed out;
  Stopwatch clock;
  if (n_image > 0) {
    KVG_RETURN(context.Decode(std::span<const Token>(artifact.tokens()).first(n_image),
                              Schedule::kExact, 0, nullptr, progress));
  }
  out.prefill_ms = clock.Ms();
  KVG_ASSIGN(const ImageBuffer image, TakeImage(context));
  const ByteSpan stored = artifact.image();
  const auto [ours, theirs] =
      std::mismatch(image.begin(), image.end(), stored.begin(), stored.end());
  out.identical = ours == image.end() && theirs == stored.end();
  out.first_difference = static_cast<uint64_t>(ours - image.begin());
  return out;
}

}  // namespace kvgraft::session
