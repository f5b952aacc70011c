#include "kvgraft/app/ask_several_internal.h"
#include "kvgraft/app/capture.h"
#include "kvgraft/app/version.h"
#include "kvgraft/session/compose.h"
#include "kvgraft/session/drift.h"

namespace kvgraft::app {
namespace {

class SeveralGrafts {
 public:
  SeveralGrafts(Runtime& runtime, engine::Context& context,
                const std::vector<OpenedArtifact>& opened, const ArtifactSequence& all,
                const AskOptions& options, AskReport* report)
      : runtime_(runtime),
        context_(context),
        opened_(opened),
        all_(all),
        options_(options),
        report_(report) {}

  Status Run() {
    KVG_ASSIGN(model_, runtime_.OpenModel());
    KVG_ASSIGN(const size_t done, GraftStart());
    if (done == opened_.size()) return Status::Ok();
    return options_.exact ? ComputeRest() : ComposeRest(done);
  }

 private:
  // The state of the first artifacts as this very sequence, if the store has it, else the first.
  // How many artifacts that covers.
  Result<size_t> GraftStart() {
    KVG_ASSIGN(store::Store * store, runtime_.OpenStore());
    KVG_ASSIGN(std::optional<store::Entry> found,
               store->FindLongestPrefix(context_.identity().CompatId(), all_.tokens));
    for (size_t n = opened_.size(); n > 1 && found && found->tier == "exact"; --n) {
      if (found->n_tokens != all_.ends[n - 1]) continue;
      KVG_ASSIGN(const OpenedArtifact stored, OpenRef(runtime_, found->id));
      KVG_ASSIGN(const session::Grafted grafted,
                 GraftInto(runtime_, context_, stored, options_.probe));
      AddGrafted(grafted, stored, report_);
      return n;
    }
    KVG_ASSIGN(const session::Grafted grafted,
               GraftInto(runtime_, context_, opened_[0], options_.probe));
    AddGrafted(grafted, opened_[0], report_);
    return size_t{1};
  }

  Status ComposeRest(size_t done) {
    session::ComposeRequest request;
    request.tokens = all_.tokens;
    request.attach.link_tokens = options_.link_tokens;
    request.attach.verify_threads = runtime_.config().n_threads;
    for (size_t i = done; i < opened_.size(); ++i) {
      request.artifacts.push_back(&opened_[i].reader);
      report_->artifacts.push_back(opened_[i].entry);
    }
    session::DriftRecord record;
    if (options_.gate) {
      KVG_ASSIGN(record, runtime_.Drift(context_.identity(), options_.link_tokens));
      request.gate = &record;
    }
    // What is grafted in other bits than this build's is no start for an exact prefill.
    request.exact_start = report_->tier == "exact";
    request.restart = [this, done](engine::Context&) { return RestartExact(done); };
    KVG_ASSIGN(const session::Composed composed,
               session::Compose(context_, *model_, request, runtime_.hooks().Stage("attach")));
    Report(composed, done, request.exact_start);
    return Status::Ok();
  }

  // The exact start once more, after the gate has said no.
  Status RestartExact(size_t done) {
    AskReport unused;
    SeveralGrafts again(runtime_, context_, opened_, all_, options_, &unused);
    KVG_ASSIGN(const size_t covered, again.GraftStart());
    return covered == done ? Status::Ok() : Status(Code::kInternal, "the store has changed");
  }

  void Report(const session::Composed& composed, size_t done, bool exact_start) {
    uint64_t attached_cells = 0;
    for (const session::Attached& a : composed.attached) {
      report_->verify_ms += a.verify_ms;
      report_->load_ms += a.move_ms + a.load_ms;
      report_->tail_ms += a.link_ms + a.tail_ms;
      attached_cells += a.tokens_reused;
    }
    report_->tail_ms += composed.fallback_ms;
    if (composed.fell_back && !exact_start) report_->tokens_reused = 0;
    report_->tokens_reused += composed.tokens_reused;
    report_->tokens_computed += composed.tokens_computed;
    for (size_t i = 0; i < composed.verdicts.size(); ++i) {
      report_->gate.push_back({opened_[done + i].entry.id, composed.verdicts[i]});
    }
    report_->fell_back = composed.fell_back;
    if (composed.fell_back || attached_cells == 0) {
      report_->tier = "computed";
      report_->tier_reason = composed.fell_back ? composed.reason
                                                : "nothing was attached: all tokens behind the "
                                                  "first artifact were computed in their place";
      return;
    }
    report_->tier = "composed";
    report_->tier_reason = std::string(
                               "artifacts behind the first stand at other positions than "
                               "their own; ") +
                           (options_.gate ? "all passed the drift gate" : "the drift gate is off");
  }

  Status ComputeRest() {
    KVG_ASSIGN(const session::ExactProfile profile, runtime_.Profile());
    session::CaptureRequest request;
    request.tokens = all_.tokens;
    request.text = all_.text;
    request.parent = report_->artifacts[0].id;
    request.prompt_kind = opened_[0].reader.manifest().prompt_kind;
    request.prompt_suffix = opened_[0].reader.manifest().prompt_suffix;
    request.verified_schedule = profile.holds;
    request.producer = kProducer;
    const double start = NowMs();
    KVG_ASSIGN(session::Captured captured,
               session::Capture(context_, *model_, request, runtime_.hooks().Stage("prefill")));
    report_->tokens_computed += captured.tokens_computed;
    report_->tail_ms += NowMs() - start;
    // What went on from other bits than this build's must not be stored as exact.
    if (report_->tier != "exact") return Status::Ok();
    KVG_ASSIGN(store::Store * store, runtime_.OpenStore());
    KVG_ASSIGN(const store::Entry entry, store->Put(captured.parts, captured.image, ""));
    report_->stored_id = entry.id;
    return Status::Ok();
  }

  Runtime& runtime_;
  engine::Context& context_;
  const std::vector<OpenedArtifact>& opened_;
  const ArtifactSequence& all_;
  const AskOptions& options_;
  AskReport* report_;
  engine::Model* model_ = nullptr;
};

}  // namespace

Result<ArtifactSequence> JoinTexts(const engine::Model& model,
                                   const std::vector<OpenedArtifact>& opened) {
  ArtifactSequence all;
  for (const OpenedArtifact& one : opened) {
    std::vector<engine::Token> tokens = one.reader.tokens();
    if (!all.ends.empty()) {
      KVG_ASSIGN(tokens, session::TokensBehind(model, one.reader));
      all.text += "\n\n";
    }
    all.tokens.insert(all.tokens.end(), tokens.begin(), tokens.end());
    all.ends.push_back(all.tokens.size());
    all.text += one.reader.text();
  }
  return all;
}

Status GraftSeveral(Runtime& runtime, engine::Context& context,
                    const std::vector<OpenedArtifact>& opened, const ArtifactSequence& all,
                    const AskOptions& options, AskReport* report) {
  return SeveralGrafts(runtime, context, opened, all, options, report).Run();
}

}  // namespace kvgraft::app
