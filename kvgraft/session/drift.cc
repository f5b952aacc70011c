#include "kvgraft/session/drift.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kvgraft/core/stopwatch.h"

namespace kvgraft::session {
namespace {

std::string Text(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// The smallest of the values that at least `share` of them do not exceed.
double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

// kGoodPassed of the good compositions are at most so; 0 without any.
template <typename Field>
double GoodLimit(const std::vector<DriftTrial>& trials, Field field) {
  std::vector<double> values;
  for (const DriftTrial& t : trials) {
    if (t.kind == "good" && (field != &DriftTrial::kl || t.kl >= 0)) values.push_back(t.*field);
  }
  return values.empty() ? 0 : Quantile(std::move(values), kGoodPassed);
}

void Count(const DriftTrial& t, DriftRecord* r) {
  const bool passes = t.delta <= r->threshold;  // false for NaN
  if (t.kind == "good") {
    ++r->n_good;
    r->good_passed += passes ? 1 : 0;
    return;
  }
  ++r->n_bad;
  r->bad_caught += passes ? 0 : 1;
  if (t.kl <= r->harm_kl) return;
  ++r->n_harmful;
  r->harmful_caught += passes ? 0 : 1;
}

std::string WhyNotUsable(const DriftRecord& r) {
  if (r.n_good == 0) return "no good composition was tried";
  if (r.n_harmful < kMinHarmful) {
    return "only " + std::to_string(r.n_harmful) + " of " + std::to_string(r.n_bad) +
           " deliberately broken compositions do this model harm: nothing to calibrate on";
  }
  if (r.harmful_caught < kHarmfulCaught * r.n_harmful) {
    return "the loss of the last tokens tells only " + std::to_string(r.harmful_caught) + " of " +
           std::to_string(r.n_harmful) + " harmful compositions from good ones";
  }
  return "";
}

// Why one of the artifacts could not be judged, "" if all can be.
std::string WhyNoGate(const ComposeRequest& request) {
  if (request.gate == nullptr) return "";
  if (!request.gate->usable) {
    return "composing is off for this model and configuration: " + request.gate->reason;
  }
  for (const artifact::Reader* one : request.artifacts) {
    const size_t n = one->manifest().tail_loss.size();
    if (n >= kMinHeldTokens || one->tokens().size() <= request.attach.link_tokens) continue;
    return "artifact " + one->manifest().id.substr(0, 12) + " has no recorded loss to compare " +
           "with (captured by an older version, or as a very short or continued text)";
  }
  return "";
}

Status FallBack(engine::Context& context, const ComposeRequest& request, std::string reason,
                const engine::Progress& progress, Composed* out) {
  const Stopwatch clock;
  out->fell_back = true;
  out->reason = std::move(reason);
  out->tokens_reused = 0;
  if (!out->attached.empty() || !request.exact_start) {
    KVG_RETURN(context.Clear());
    if (request.exact_start && request.restart) KVG_RETURN(request.restart(context));
  }
  const auto held = static_cast<size_t>(context.n_past());
  const size_t n = request.tokens.size();
  if (held < n) {
    KVG_RETURN(context.Decode(request.tokens.subspan(held), engine::Schedule::kExact, 0, nullptr,
                              progress));
  }
  out->tokens_computed += n - held;
  out->fallback_ms = clock.Ms();
  return Status::Ok();
}

}  // namespace

DriftRecord ChooseThreshold(std::vector<DriftTrial> trials) {
  DriftRecord r;
  r.trials = std::move(trials);
  r.threshold = GoodLimit(r.trials, &DriftTrial::delta);
  r.harm_kl = kHarmFactor * GoodLimit(r.trials, &DriftTrial::kl);
  double n_kl = 0;
  for (const DriftTrial& t : r.trials) {
    Count(t, &r);
    if (t.kind != "good" || t.kl < 0) continue;
    r.good_kl += t.kl;
    ++n_kl;
  }
  if (n_kl > 0) r.good_kl /= n_kl;
  r.reason = WhyNotUsable(r);
  r.usable = r.reason.empty();
  return r;
}

GateVerdict Judge(const DriftRecord& record, std::span<const uint64_t> stored_micronats,
                  std::span<const double> composed_nats) {
  GateVerdict v;
  v.threshold = record.threshold;
  const size_t n = std::min(stored_micronats.size(), composed_nats.size());
  v.held_tokens = static_cast<uint32_t>(n);
  if (n < kMinHeldTokens) {
    v.reason = std::to_string(n) + " tokens with a recorded loss, at least " +
               std::to_string(kMinHeldTokens) + " are needed";
    return v;
  }
  for (size_t i = 0; i < n; ++i) {
    v.delta += composed_nats[composed_nats.size() - n + i] -
               static_cast<double>(stored_micronats[stored_micronats.size() - n + i]) * 1e-6;
  }
  v.delta /= static_cast<double>(n);
  v.judged = std::isfinite(v.delta);
  v.passed = v.judged && v.delta <= v.threshold;
  if (!v.passed) {
    v.reason = "its last " + std::to_string(n) + " tokens are predicted worse by " +
               Text("%.3f", v.delta) + " nats than when it was captured, the limit is " +
               Text("%.3f", v.threshold);
  }
  return v;
}

Result<Composed> Compose(engine::Context& context, const engine::Model& model,
                         const ComposeRequest& request, const engine::Progress& progress) {
  Composed out;
  if (std::string why = WhyNoGate(request); !why.empty()) {
    KVG_RETURN(FallBack(context, request, std::move(why), progress, &out));
    return out;
  }
  AttachOptions attach = request.attach;
  attach.held_tokens = request.gate != nullptr ? kHeldTokens : 0;
  for (const artifact::Reader* one : request.artifacts) {
    KVG_ASSIGN(Attached attached, Attach(context, model, *one, attach, progress));
    out.tokens_reused += attached.tokens_reused;
    out.tokens_computed += attached.tokens_computed;
    out.attached.push_back(std::move(attached));
    if (request.gate == nullptr) continue;
    const Attached& last = out.attached.back();
    if (last.tokens_reused == 0) {  // all of it was decoded in its place: nothing to judge
      out.verdicts.push_back({false, true, 0, request.gate->threshold, 0, ""});
      continue;
    }
    out.verdicts.push_back(Judge(*request.gate, one->manifest().tail_loss, last.held_loss));
    if (out.verdicts.back().passed) continue;
    KVG_RETURN(FallBack(context, request,
                        "artifact " + one->manifest().id.substr(0, 12) +
                            " did not pass the gate: " + out.verdicts.back().reason,
                        progress, &out));
    return out;
  }
  return out;
}

}  // namespace kvgraft::session
