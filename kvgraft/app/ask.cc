#include "kvgraft/app/ask.h"

#include <algorithm>

#include "kvgraft/app/ask_several_internal.h"
#include "kvgraft/app/capture.h"

namespace kvgraft::app {
namespace {

constexpr uint64_t kProbeTokens = 8;

// What comes before the question: tokens in the context, and how the prompt goes on.
struct Base {
  std::vector<engine::Token> tokens;  // held by the context, or the prompt's first part
  std::string kind, suffix;
};

Status CheckOptions(const AskOptions& options) {
  if (!options.grafts.empty() && !options.source.empty()) {
    return Status(Code::kInvalidArgument, "give an artifact or a document, not both");
  }
  return session::CheckSampling(options.generate.sampling);
}

// Refuses another model or configuration before anything that takes long (the self-test of a model
// that is new here) or that fails for another reason (a context too small). Where the attention
// mode is still open, the artifact's is assumed.
Status CheckIdentityEarly(Runtime& runtime, const artifact::Reader& artifact) {
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  engine::ContextOptions options = runtime.SelfTestOptions().context;
  options.n_ctx = 256;
  if (options.attention == engine::Attention::kAuto) {
    options.attention = artifact.manifest().schedule.attention == "flash" ? engine::Attention::kOn
                                                                          : engine::Attention::kOff;
  }
  auto context = model->NewContext(options);
  if (!context.ok()) return Status::Ok();  // the context that is really wanted says it better
  const StateIdentity& stored = artifact.manifest().identity;
  const std::vector<IdentityDiff> diffs = DiffCompat(stored, (*context)->identity());
  // The size of the context decides on LongRoPE's factors, and this one is small.
  const bool only_size = std::all_of(diffs.begin(), diffs.end(), [](const IdentityDiff& d) {
    return d.field == "rope.longrope_factors";
  });
  return only_size ? Status::Ok() : CheckCompat(stored, (*context)->identity());
}

}  // namespace

Result<OpenedArtifact> OpenRef(Runtime& runtime, const std::string& ref) {
  KVG_ASSIGN(store::Store * store, runtime.OpenStore());
  KVG_ASSIGN(store::Entry entry, store->Find(ref));
  KVG_ASSIGN(artifact::Reader reader, store->OpenArtifact(entry));
  return OpenedArtifact{std::move(entry), std::move(reader)};
}

Result<std::unique_ptr<engine::Context>> NewContextFor(Runtime& runtime,
                                                       const artifact::Reader* artifact,
                                                       uint64_t needed, uint64_t least) {
  if (artifact != nullptr) KVG_RETURN(CheckIdentityEarly(runtime, *artifact));
  KVG_ASSIGN(std::unique_ptr<engine::Context> context, runtime.NewContext(needed, least));
  if (artifact != nullptr) {
    KVG_RETURN(CheckCompat(artifact->manifest().identity, context->identity()));
  }
  return context;
}

Result<session::Grafted> GraftInto(Runtime& runtime, engine::Context& context,
                                   const OpenedArtifact& artifact, session::ProbePolicy probe) {
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  KVG_ASSIGN(session::ExactProfile profile, runtime.Profile());
  session::GraftOptions options;
  options.probe = probe;
  options.verify_threads = runtime.config().n_threads;
  options.verified_schedule = profile.holds;
  options.ledger = runtime.ledger();
  auto grafted =
      session::Graft(context, *model, artifact.reader, options, runtime.hooks().Stage("restore"));
  if (!grafted.ok() && grafted.status().code() == Code::kCorrupt) {
    KVG_ASSIGN(store::Store * store, runtime.OpenStore());
    Status moved = store->Quarantine(artifact.entry.id, grafted.status().message());
    runtime.hooks().Note(moved.ok() ? artifact.entry.id.substr(0, 12) + " is in quarantine now"
                                    : moved.message());
  }
  return grafted;
}

void AddGrafted(const session::Grafted& grafted, const OpenedArtifact& opened, AskReport* report) {
  report->tier = grafted.tier;
  report->tier_reason = grafted.tier_reason;
  report->artifacts.push_back(opened.entry);
  report->tokens_reused = grafted.tokens_reused;
  report->tokens_computed = grafted.tokens_computed;
  report->probed = grafted.probed;
  report->probe_identical = grafted.probe_identical;
  report->verify_ms = grafted.verify_ms;
  report->load_ms = grafted.load_ms;
  report->tail_ms = grafted.tail_ms;
  report->probe_ms = grafted.probe_ms;
}

namespace {

// Grafts, or leaves the context empty and says why in report->fallback. What the tokens are is
// known even then: they have been checked when the artifact was opened.
Status GraftOrFallBack(Runtime& runtime, engine::Context& context, const OpenedArtifact& opened,
                       const AskOptions& options, AskReport* report) {
  auto grafted = GraftInto(runtime, context, opened, options.probe);
  const Code code = grafted.status().code();
  if (options.or_compute && (code == Code::kCorrupt || code == Code::kIo)) {
    report->fallback = grafted.status().message();
    return context.Clear();
  }
  KVG_RETURN(grafted.status());
  AddGrafted(*grafted, opened, report);
  return Status::Ok();
}

}  // namespace

Result<AskReport> RunAsk(Runtime& runtime, const AskOptions& options) {
  KVG_RETURN(CheckOptions(options));
  AskReport report;
  Base base;
  std::vector<OpenedArtifact> opened;
  for (const std::string& ref : options.grafts) {
    KVG_ASSIGN(OpenedArtifact one, OpenRef(runtime, ref));
    opened.push_back(std::move(one));
  }
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  // The first is checked as the context is made.
  for (size_t i = 1; i < opened.size(); ++i) {
    KVG_RETURN(CheckIdentityEarly(runtime, opened[i].reader));
  }
  ArtifactSequence all;
  if (!opened.empty()) {
    KVG_ASSIGN(all, JoinTexts(*model, opened));
    base = {all.tokens, opened[0].reader.manifest().prompt_kind,
            opened[0].reader.manifest().prompt_suffix};
  } else {
    KVG_ASSIGN(Prepared prepared, Prepare(*model, options.source));
    base = {std::move(prepared.tokens), prepared.prompt.kind, prepared.prompt.suffix};
  }
  const auto segments = session::QuestionSegments(base.kind, base.suffix, options.question);
  KVG_ASSIGN(std::vector<engine::Token> question,
             session::TokenizeSegments(*model, segments, /*bos=*/base.tokens.empty()));
  report.prompt_tokens = base.tokens.size() + question.size();
  if (question.empty()) return Status(Code::kInvalidArgument, "there is no question");

  const uint64_t least = base.tokens.size() + std::max<uint64_t>(question.size() + 1, kProbeTokens);
  const uint64_t wish = report.prompt_tokens + options.generate.max_tokens;
  KVG_ASSIGN(std::unique_ptr<engine::Context> context,
             NewContextFor(runtime, opened.empty() ? nullptr : &opened[0].reader,
                           std::max(wish, least), least));
  report.n_ctx = context->n_ctx();

  const double start = NowMs();
  std::vector<engine::Token> history, prompt;
  report.tier = "computed";
  if (opened.size() == 1) {
    KVG_RETURN(GraftOrFallBack(runtime, *context, opened[0], options, &report));
  } else if (opened.size() > 1) {
    KVG_RETURN(GraftSeveral(runtime, *context, opened, all, options, &report));
  }
  (report.artifacts.empty() ? prompt : history) = std::move(base.tokens);
  prompt.insert(prompt.end(), question.begin(), question.end());
  report.tokens_computed += prompt.size();

  session::GenerateOptions generate = options.generate;
  // The last token chosen needs no cell of its own.
  const uint64_t room = context->n_ctx() - report.prompt_tokens + 1;
  generate.max_tokens = static_cast<uint32_t>(std::min<uint64_t>(generate.max_tokens, room));
  report.max_tokens = generate.max_tokens;
  report.exact_schedule = generate.schedule == engine::Schedule::kExact;
  const double before = NowMs();
  KVG_ASSIGN(report.generation, session::Generate(*context, *model, history, prompt, generate,
                                                  runtime.hooks().Stage("prefill")));
  report.first_token_ms = before - start - report.probe_ms + report.generation.first_token_ms;
  report.total_ms = NowMs() - start;
  return report;
}

}  // namespace kvgraft::app
