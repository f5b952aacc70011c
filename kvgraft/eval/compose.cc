#include "kvgraft/eval/compose.h"

#include <algorithm>
#include <map>

#include "kvgraft/core/hash.h"
#include "kvgraft/core/random.h"
#include "kvgraft/core/stopwatch.h"
#include "kvgraft/eval/restore_request.h"
#include "kvgraft/math/divergence.h"
#include "kvgraft/session/prompt.h"
#include "kvgraft/session/sampling.h"

namespace kvgraft::eval {
namespace {

using engine::Context;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

// A text, captured alone as `capture` does it.
struct CapturedText {
  std::vector<uint8_t> bytes;
  std::optional<artifact::Reader> reader;
};

constexpr uint32_t kContextTokens = 2048;

}  // namespace

class ComposeMeasurement::Impl {
 public:
  Impl(engine::Model& model, ComposeOptions options)
      : model_(model), options_(std::move(options)) {}

  Status Start() {
    if (options_.max_answer < 1 || options_.max_answer > 256) {
      return Status(Code::kInvalidArgument, "compose: answers of 1 to 256 tokens are expected");
    }
    KVG_RETURN(NewContext(kContextTokens));
    return session::CheckMovable(*context_).Annotate("compose");
  }

  Result<ComposeItem> Run(const ComposeQuestion& question, const engine::Progress& progress) {
    progress_ = progress;
    ComposeItem item{question.id, question.kind, static_cast<uint32_t>(question.chunks.size())};
    KVG_RETURN(Prepare(question));
    item.n_tokens = static_cast<uint32_t>(all_.size());
    full_ = Logits();
    KVG_RETURN(Add(question, "full", &item, [this](ComposeArm*) { return Prefill(); }));
    KVG_RETURN(Add(question, "none", &item, [this](ComposeArm*) { return context_->Clear(); }));
    KVG_RETURN(Add(question, "paste", &item,
                   [this](ComposeArm*) { return Compose({.link_tokens = 0}, nullptr, nullptr); }));
    for (const uint32_t link : options_.link_tokens) {
      const auto at = std::find_if(options_.gates.begin(), options_.gates.end(),
                                   [link](const auto& gate) { return gate.link_tokens == link; });
      const session::DriftRecord* gate = at == options_.gates.end() ? nullptr : &*at;
      const session::AttachOptions attach = {.link_tokens = link,
                                             .held_tokens = session::kHeldTokens};
      KVG_RETURN(Add(question, "link-" + std::to_string(attach.link_tokens), &item,
                     [&](ComposeArm* arm) { return Compose(attach, gate, arm); }));
    }
    return item;
  }

 private:
  Status Prefill() {
    KVG_RETURN(context_->Clear());
    return context_->Decode(all_, Schedule::kExact, 0, nullptr, progress_);
  }

  // The texts in the order of the seed, captured; their sequence; the question and the answer.
  Status Prepare(const ComposeQuestion& question) {
    std::vector<std::string> chunks = question.chunks;
    const std::string hash = Sha256Hex(question.id);
    Random random(options_.seed * 0x9E3779B97F4A7C15ull +
                  std::stoull(hash.substr(0, 15), nullptr, 16));
    random.Shuffle(&chunks);
    texts_.clear();
    all_.clear();
    for (const std::string& chunk : chunks) {
      KVG_ASSIGN(const artifact::Reader* reader, Captured(chunk));
      Tokens tokens = reader->tokens();
      if (!texts_.empty()) {
        KVG_ASSIGN(tokens, session::TokensBehind(model_, *reader));
      }
      all_.insert(all_.end(), tokens.begin(), tokens.end());
      texts_.push_back(reader);
    }
    const artifact::Manifest& m = texts_[0]->manifest();
    const std::string space = question.prefix.empty() ? "" : " ";
    KVG_ASSIGN(answer_, model_.Tokenize(space + question.answers[0], /*add_bos=*/false, false));
    const session::Segment prefix = {question.prefix};
    auto segments = session::QuestionSegments(m.prompt_kind, m.prompt_suffix, question.question);
    segments.push_back(prefix);
    KVG_ASSIGN(question_, session::TokenizeSegments(model_, segments, /*bos=*/false));
    // Without any text: the same template around the question alone.
    KVG_ASSIGN(const session::DocumentPrompt empty,
               session::BuildDocumentPrompt(model_, "", "", m.prompt_kind == "raw"));
    auto alone = empty.head;
    const auto rest = session::QuestionSegments(empty.kind, empty.suffix, question.question);
    alone.insert(alone.end(), rest.begin(), rest.end());
    alone.push_back(prefix);
    KVG_ASSIGN(alone_, session::TokenizeSegments(model_, alone, /*bos=*/true));
    const size_t needed = all_.size() + question_.size() + answer_.size() + options_.max_answer;
    if (needed <= context_->n_ctx()) return Status::Ok();
    return NewContext(needed);
  }

  Status NewContext(size_t n_tokens) {
    engine::ContextOptions context = options_.context;
    context.n_ctx = static_cast<uint32_t>((n_tokens + 1023) / 1024 * 1024);
    KVG_ASSIGN(context_, model_.NewContext(context));
    return Status::Ok();
  }

  Result<const artifact::Reader*> Captured(const std::string& text) {
    CapturedText& captured = captured_[text];
    if (captured.reader) return &*captured.reader;
    KVG_ASSIGN(const session::DocumentPrompt prompt,
               session::BuildDocumentPrompt(model_, text, "", !model_.info().has_chat_template));
    session::CaptureRequest request;
    KVG_ASSIGN(request.tokens, session::TokenizeSegments(model_, prompt.head, /*bos=*/true));
    request.text = text;
    request.prompt_kind = prompt.kind;
    request.prompt_suffix = prompt.suffix;
    request.probe = false;
    request.verified_schedule = true;
    request.producer = "eval";
    KVG_RETURN(context_->Clear());
    KVG_ASSIGN(session::Captured state, session::Capture(*context_, model_, request, progress_));
    KVG_ASSIGN(captured.bytes, artifact::Encode(state.parts, state.image));
    KVG_ASSIGN(artifact::Reader reader, artifact::Reader::FromBytes(captured.bytes, "text"));
    captured.reader.emplace(std::move(reader));
    return &*captured.reader;
  }

  Status Compose(const session::AttachOptions& attach, const session::DriftRecord* gate,
                 ComposeArm* arm) {
    session::GraftOptions graft;
    graft.probe = session::ProbePolicy::kNever;
    KVG_RETURN(session::Graft(*context_, model_, *texts_[0], graft).status());
    for (size_t i = 1; i < texts_.size(); ++i) {
      KVG_ASSIGN(const session::Attached attached,
                 session::Attach(*context_, model_, *texts_[i], attach));
      if (gate == nullptr) continue;
      const session::GateVerdict v =
          session::Judge(*gate, texts_[i]->manifest().tail_loss, attached.held_loss);
      const bool passed = v.passed || attached.tokens_reused == 0;
      arm->passed = (arm->gated ? arm->passed : true) && passed;
      arm->delta = arm->gated ? std::max(arm->delta, v.delta) : v.delta;
      arm->gated = true;
    }
    return Status::Ok();
  }

  template <typename Fill>
  Status Add(const ComposeQuestion& question, std::string name, ComposeItem* item, Fill fill) {
    ComposeArm arm{std::move(name)};
    const Stopwatch clock;
    KVG_RETURN(fill(&arm));
    arm.ms = clock.Ms();
    KVG_RETURN(Score(question, arm.name == "none" ? alone_ : question_, &arm));
    item->arms.push_back(std::move(arm));
    return Status::Ok();
  }

  // The question, then the expected answer teacher-forced; then the model's own answer.
  Status Score(const ComposeQuestion& question, const Tokens& asked, ComposeArm* arm) {
    const Pos start = context_->n_past() + static_cast<Pos>(asked.size());
    Tokens tokens = asked;
    tokens.insert(tokens.end(), answer_.begin(), answer_.end() - 1);
    Logits logits;
    KVG_RETURN(context_->Decode(tokens, Schedule::kExact, answer_.size(), &logits));
    if (full_.rows == 0) full_ = logits;
    arm->rows = static_cast<uint32_t>(logits.rows);
    const auto n = static_cast<double>(logits.rows);
    for (size_t i = 0; i < logits.rows; ++i) {
      arm->kl += math::KlDivergence(full_.row(i), logits.row(i)) / n;
      arm->gold_loss -= session::LogProb(logits.row(i), answer_[i]) / n;
      arm->top1 += Argmax(full_.row(i)) == Argmax(logits.row(i)) ? 1 : 0;
    }
    return Answer(question, start, logits, arm);
  }

  // Greedy. As long as it is the expected answer its logits are there already.
  Status Answer(const ComposeQuestion& question, Pos start, const Logits& forced, ComposeArm* arm) {
    size_t n = 0;
    Token next = Argmax(forced.row(0));
    while (n + 1 < forced.rows && next == answer_[n]) {
      arm->answer += model_.TokenText(next, false);
      next = Argmax(forced.row(++n));
    }
    KVG_RETURN(context_->Truncate(start + static_cast<Pos>(n)));
    Logits logits;
    for (; n < options_.max_answer && !model_.IsEndOfGeneration(next); ++n) {
      arm->answer += model_.TokenText(next, false);
      arm->correct = ContainsAnswer(arm->answer, question.answers);
      const bool longer_number = forced.rows > n + 1;  // the expected answer may not be over yet
      if (n + 1 == options_.max_answer || (arm->correct && !longer_number)) break;
      KVG_RETURN(context_->Decode({&next, 1}, Schedule::kExact, 1, &logits));
      next = Argmax(logits.row(0));
    }
    arm->correct = ContainsAnswer(arm->answer, question.answers);
    return Status::Ok();
  }

  engine::Model& model_;
  const ComposeOptions options_;
  std::unique_ptr<Context> context_;
  std::map<std::string, CapturedText> captured_;
  std::vector<const artifact::Reader*> texts_;
  Tokens all_, question_, alone_, answer_;
  Logits full_;
  engine::Progress progress_;
};

ComposeMeasurement::ComposeMeasurement(engine::Model& model, ComposeOptions options)
    : impl_(std::make_unique<Impl>(model, std::move(options))) {}
ComposeMeasurement::~ComposeMeasurement() = default;
Status ComposeMeasurement::Start() { return impl_->Start(); }
Result<ComposeItem> ComposeMeasurement::Run(const ComposeQuestion& question,
                                            const engine::Progress& progress) {
  return impl_->Run(question, progress);
}

}  // namespace kvgraft::eval
