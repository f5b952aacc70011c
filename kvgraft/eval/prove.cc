#include "kvgraft/eval/prove.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/file.h"
#include "kvgraft/eval/corpus.h"
#include "kvgraft/eval/prove_plan.h"
#include "kvgraft/eval/restore_request.h"
#include "kvgraft/session/capture.h"

namespace kvgraft::eval {
namespace {

using engine::Context;
using engine::Logits;
using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

constexpr uint32_t kMaxGenerated = 256;
constexpr uint32_t kSpareTokens = 16;      // of the context: the probe
constexpr size_t kOtherConversation = 90;  // tokens in the context before a restore

struct ColdRun {
  std::vector<float> logits;  // of the last token
  std::string state_sha256;
};

class Prover {
 public:
  Prover(engine::Model& model, const ProveOptions& options)
      : model_(model), options_(options), corpus_(options.texts) {}

  Status Start() {
    KVG_RETURN(CheckOptions());
    const uint32_t spare = options_.generate_tokens + kSpareTokens;
    limits_.min_tokens = options_.min_tokens;
    limits_.max_tokens = options_.max_tokens;
    const uint32_t window = model_.info().n_ctx_train;
    if (window > 0 && window < limits_.max_tokens + spare) {
      if (window < limits_.min_tokens + spare) {
        return Status(Code::kInvalidArgument,
                      "proof: the model's window of " + std::to_string(window) +
                          " tokens is too short for " + std::to_string(limits_.min_tokens + spare));
      }
      limits_.max_tokens = window - spare;
    }
    limits_.max_threads = std::clamp(std::thread::hardware_concurrency(), 1u, 2u);
    limits_.alignment = model_.info().state_alignment;
    limits_.new_process = static_cast<bool>(options_.other_process);
    context_options_ = options_.context;
    context_options_.n_ctx = limits_.max_tokens + spare;
    context_options_.embeddings = false;
    KVG_ASSIGN(context_, model_.NewContext(context_options_));
    return Status::Ok();
  }

  SamplePlan Plan(uint32_t index) const { return PlanSample(options_.seed, index, limits_); }

  Result<ProveSample> Run(const SamplePlan& plan) {
    ProveSample s;
    s.index = plan.index;
    s.n_tokens = plan.n_tokens;
    s.n_parts = plan.n_parts;
    s.n_threads = plan.n_threads;
    s.n_single = plan.n_single;
    s.arm = plan.arm;
    KVG_ASSIGN(const Tokens tokens, DrawTokens(plan));
    KVG_ASSIGN(const ColdRun cold, Cold(tokens));
    KVG_ASSIGN(const ArmOutcome arm, RunArm(plan, tokens));
    s.tier = arm.tier;
    s.n_restored = arm.n_restored;
    s.state_identical = arm.state_sha256 == cold.state_sha256;
    s.logits_identical = SameBits(arm.logits, cold.logits);
    s.kl = KlDivergence(cold.logits, arm.logits);
    s.max_abs_logit_diff = MaxAbsDifference(cold.logits, arm.logits);
    KVG_RETURN(CheckWhole(tokens, arm, &s));
    KVG_RETURN(CompareOrdinary(plan, tokens, cold, &s));
    return s;
  }

 private:
  Status CheckOptions() const {
    if (options_.min_tokens < 2 || options_.max_tokens < options_.min_tokens) {
      return Status(Code::kInvalidArgument,
                    "proof: lengths from " + std::to_string(options_.min_tokens) + " to " +
                        std::to_string(options_.max_tokens) + "; expected 2 <= min <= max");
    }
    if (options_.max_tokens > (1u << 20) || options_.generate_tokens > kMaxGenerated) {
      return Status(Code::kInvalidArgument, "proof: at most 1048576 tokens, and 256 generated");
    }
    if (options_.other_process && options_.temp_dir.empty()) {
      return Status(Code::kInvalidArgument,
                    "proof: the new-process arm needs a folder for its artifact files");
    }
    if (!model_.info().unsupported.empty()) {
      return Status(Code::kUnsupported, "proof: " + model_.info().unsupported);
    }
    return Status::Ok();
  }

  static bool SameBits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  }

  Result<Tokens> TokensOf(Random random, size_t n) const {
    for (size_t bytes = n * 5 + 64;; bytes *= 2) {
      Random again = random;
      KVG_ASSIGN(Tokens tokens, model_.Tokenize(corpus_.Draw(again, bytes), true, false));
      if (tokens.size() >= n) {
        tokens.resize(n);
        return tokens;
      }
      if (bytes > corpus_.bytes() * 2) {
        return Status(Code::kInvalidArgument, "proof: the texts give " +
                                                  std::to_string(tokens.size()) +
                                                  " tokens, a sample needs " + std::to_string(n) +
                                                  "; add texts or lower the largest length");
      }
    }
  }

  Result<Tokens> DrawTokens(const SamplePlan& plan) const {
    return TokensOf(Random(plan.text_seed), plan.n_tokens);
  }

  // All at once in an empty context, with constant padding and the context's own thread count.
  Result<ColdRun> Cold(const Tokens& tokens) {
    KVG_RETURN(context_->Clear());
    Logits logits;
    KVG_RETURN(context_->Decode(tokens, Schedule::kExact, 1, &logits));
    ColdRun cold;
    cold.logits = std::move(logits.values);
    KVG_ASSIGN(cold.state_sha256, HashState(*context_));
    return cold;
  }

  Result<ArmOutcome> RunArm(const SamplePlan& plan, const Tokens& tokens) {
    KVG_RETURN(context_->Clear());
    KVG_RETURN(
        DecodeDisturbed(*context_, tokens, plan.head, plan.n_threads, plan.disturb_seed, nullptr));
    if (plan.n_captured == 0) return Continue(*context_, plan, tokens, {});

    session::CaptureRequest request;
    request.tokens.assign(tokens.begin(), tokens.begin() + plan.n_captured);
    request.verified_schedule = true;
    KVG_ASSIGN(session::Captured captured, session::Capture(*context_, model_, request));
    if (plan.arm == "restore-new-process") return RestoreInOtherProcess(plan, tokens, captured);

    KVG_ASSIGN(const std::vector<uint8_t> file, artifact::Encode(captured.parts, captured.image));
    KVG_ASSIGN(const artifact::Reader reader, artifact::Reader::FromBytes(file, "proof"));
    std::unique_ptr<Context> other;
    if (plan.arm == "restore-new-context") {
      KVG_ASSIGN(other, model_.NewContext(context_options_));
    } else {
      KVG_RETURN(OtherConversation(plan));
    }
    Context& target = other ? *other : *context_;
    KVG_ASSIGN(const session::Grafted grafted,
               session::Graft(target, model_, reader,
                              {.probe = session::ProbePolicy::kAlways, .verified_schedule = true}));
    ArmOutcome outcome;
    outcome.tier = grafted.tier;
    outcome.n_restored = static_cast<uint32_t>(grafted.tokens_reused);
    return Continue(target, plan, tokens, std::move(outcome));
  }

  Result<ArmOutcome> Continue(Context& context, const SamplePlan& plan, const Tokens& tokens,
                              ArmOutcome outcome) {
    Logits logits;
    KVG_RETURN(DecodeDisturbed(context, tokens, plan.rest, plan.n_threads, plan.disturb_seed + 1,
                               &logits));
    outcome.logits = std::move(logits.values);
    KVG_RETURN(FinishArm(context, model_, tokens, options_.generate_tokens, &outcome));
    return outcome;
  }

  // Leaves the context with somebody else's state, computed the ordinary way.
  Status OtherConversation(const SamplePlan& plan) {
    const size_t n = std::min<size_t>(kOtherConversation, limits_.max_tokens);
    KVG_ASSIGN(const Tokens other, TokensOf(Random(plan.disturb_seed + 2), n));
    KVG_RETURN(context_->Clear());
    KVG_RETURN(context_->RunUnrelatedTraffic(plan.disturb_seed + 3, n));
    return context_->Decode(other, Schedule::kFast, 0, nullptr);
  }

  Result<ArmOutcome> RestoreInOtherProcess(const SamplePlan& plan, const Tokens& tokens,
                                           session::Captured& captured) {
    KVG_RETURN(MakePrivateDirs(options_.temp_dir));
    const std::string stem =
        "prove-" + captured.parts.manifest.id.substr(0, 16) + "-" + std::to_string(plan.index);
    RestoreRequest request;
    request.artifact_path = JoinPath(options_.temp_dir, stem + ".kvg");
    request.logits_path = JoinPath(options_.temp_dir, stem + ".f32");
    request.rest.assign(tokens.begin() + plan.n_captured, tokens.end());
    request.steps = plan.rest;
    request.n_threads = plan.n_threads;
    request.disturb_seed = plan.disturb_seed + 1;
    request.generate_tokens = options_.generate_tokens;
    request.context = context_options_;
    Result<ArmOutcome> outcome = Ask(request, captured);
    std::error_code ignored;
    std::filesystem::remove(request.artifact_path, ignored);
    std::filesystem::remove(request.logits_path, ignored);
    return outcome;
  }

  Result<ArmOutcome> Ask(const RestoreRequest& request, session::Captured& captured) {
    KVG_ASSIGN(AtomicFile out, AtomicFile::Create(request.artifact_path, options_.temp_dir));
    KVG_RETURN(artifact::Write(captured.parts, captured.image, out));
    KVG_RETURN(out.Commit());
    KVG_ASSIGN(const std::string answer, options_.other_process(MakeRestoreRequest(request)));
    return ParseRestoreAnswer(answer, request.logits_path, model_.info().n_vocab);
  }

  // One cold prefill of prompt and generated tokens: its choices, and its state.
  Status CheckWhole(const Tokens& tokens, const ArmOutcome& arm, ProveSample* s) {
    const size_t n = arm.generated.size();
    if (n != options_.generate_tokens) return Status::Ok();  // both stay false
    Tokens all = tokens;
    all.insert(all.end(), arm.generated.begin(), arm.generated.end());
    KVG_RETURN(context_->Clear());
    Logits logits;
    KVG_RETURN(context_->Decode(all, Schedule::kExact, n + 1, &logits));
    s->generation_identical = true;
    for (size_t i = 0; i < n; ++i) {
      s->generation_identical &= Argmax(logits.row(i)) == arm.generated[i];
    }
    KVG_ASSIGN(const std::string state, HashState(*context_));
    s->final_state_identical = state == arm.final_state_sha256;
    return Status::Ok();
  }

  // The same split as users' programs decode it: no padding, the last token alone.
  Status CompareOrdinary(const SamplePlan& plan, const Tokens& tokens, const ColdRun& cold,
                         ProveSample* s) {
    std::vector<Step> steps = plan.head;
    steps.insert(steps.end(), plan.rest.begin(), plan.rest.end());
    const std::span<const Token> all(tokens);
    const size_t last = tokens.size() - 1;
    KVG_RETURN(context_->Clear());
    for (const Step& step : steps) {
      const size_t end = std::min<size_t>(step.first + step.count, last);
      const size_t size = step.one_by_one ? 1 : step.count;
      for (size_t at = step.first; at < end; at += size) {
        KVG_RETURN(context_->Decode(all.subspan(at, std::min(size, end - at)), Schedule::kFast, 0,
                                    nullptr));
      }
    }
    Logits logits;
    KVG_RETURN(context_->Decode(all.subspan(last), Schedule::kFast, 1, &logits));
    s->ordinary_max_abs_logit_diff = MaxAbsDifference(cold.logits, logits.values);
    s->ordinary_kl = KlDivergence(cold.logits, logits.values);
    KVG_ASSIGN(const std::string state, HashState(*context_));
    s->ordinary_state_identical = state == cold.state_sha256;
    return Status::Ok();
  }

  engine::Model& model_;
  const ProveOptions& options_;
  const Corpus corpus_;
  PlanLimits limits_;
  engine::ContextOptions context_options_;
  std::unique_ptr<Context> context_;
};

double Largest(const std::vector<ProveSample>& samples, double ProveSample::*field) {
  double largest = 0;
  for (const ProveSample& s : samples) largest = std::max(largest, s.*field);
  return largest;
}

}  // namespace

Result<ProveReport> Prove(engine::Model& model, const ProveOptions& options,
                          const SampleDone& on_sample) {
  Prover prover(model, options);
  KVG_RETURN(prover.Start());
  ProveReport report;
  for (uint32_t i = options.first_sample; i < options.samples; ++i) {
    const SamplePlan plan = prover.Plan(i);
    Result<ProveSample> sample = prover.Run(plan);
    if (!sample.ok()) return sample.status().Annotate("sample " + std::to_string(i));
    if (plan.new_process_skipped) ++report.new_process_skipped;
    report.samples.push_back(*sample);
    if (on_sample && !on_sample(*sample, i + 1, options.samples)) break;
  }
  return report;
}

uint32_t ProveReport::n_identical() const {
  return static_cast<uint32_t>(std::count_if(samples.begin(), samples.end(),
                                             [](const ProveSample& s) { return s.identical(); }));
}
double ProveReport::kl_max() const { return Largest(samples, &ProveSample::kl); }
double ProveReport::max_abs_logit_diff() const {
  return Largest(samples, &ProveSample::max_abs_logit_diff);
}
double ProveReport::ordinary_max_abs_logit_diff() const {
  return Largest(samples, &ProveSample::ordinary_max_abs_logit_diff);
}

}  // namespace kvgraft::eval
