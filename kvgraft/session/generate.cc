#include "kvgraft/session/generate.h"

#include <algorithm>

#include "kvgraft/core/stopwatch.h"

namespace kvgraft::session {
namespace {

using engine::Schedule;
using engine::Token;

constexpr size_t kMaxDraftRows = 8;  // of a step, unless one quantum has more

Status CheckOptions(const GenerateOptions& options, size_t n_prompt) {
  if (n_prompt == 0)
    return Status(Code::kInvalidArgument,
                  "generate: the prompt is empty, expected 1 token or more");
  if (options.stop.size() > kMaxStopStrings)
    return Status(Code::kInvalidArgument, "generate: " + std::to_string(options.stop.size()) +
                                              " stop strings, the most are 16");
  for (const std::string& stop : options.stop) {
    if (stop.empty())
      return Status(Code::kInvalidArgument, "generate: a stop string is empty; leave it out");
  }
  return CheckSampling(options.sampling);
}

class Generator {
 public:
  Generator(engine::Context& context, const engine::Model& model, const GenerateOptions& options)
      : context_(context), model_(model), options_(options), stream_(options.stop) {
    // Rows to spare, and a state that rejected drafts can be cut off from again.
    use_drafts_ = options.drafts && options.schedule == Schedule::kExact &&
                  context.options().row_quantum > 1 && model.info().unsupported.empty();
    draft_rows_ = context.options().row_quantum;
  }

  Result<Generation> Run(std::span<const Token> history, std::span<const Token> prompt,
                         const engine::Progress& progress) {
    Stopwatch start;
    n_before_ = static_cast<size_t>(context_.n_past()) + prompt.size();
    const size_t n_logits = options_.max_tokens > 0 ? 1 : 0;
    KVG_RETURN(context_.Decode(prompt, options_.schedule, n_logits, &logits_, progress));
    if (use_drafts_) {
      index_.Append(history);
      index_.Append(prompt);
    }
    bool more = false;
    if (n_logits == 0) {
      Finish("length");
    } else {
      const Token first = Sample(logits_.row(0), options_.sampling, 0);
      out_.first_token_ms = start.Ms();
      more = Accept(first);
    }
    while (more) {
      KVG_ASSIGN(more, Step());
    }
    KVG_RETURN(CutContext());
    out_.n_context = static_cast<uint64_t>(context_.n_past());
    out_.total_ms = start.Ms();
    return std::move(out_);
  }

 private:
  // Decodes the last chosen token with a draft after it, and takes over what the choices confirm.
  Result<bool> Step() {
    const size_t room = context_.n_ctx() - static_cast<size_t>(context_.n_past());
    if (room == 0) {
      Emit(stream_.Flush());
      Finish("length");
      return false;
    }
    const std::vector<Token> draft = Draft(room);
    std::vector<Token> rows = {out_.tokens.back()};
    rows.insert(rows.end(), draft.begin(), draft.end());
    KVG_RETURN(context_.Decode(rows, options_.schedule, rows.size(), &logits_));
    ++out_.steps;
    out_.drafted += draft.size();
    for (size_t i = 0;; ++i) {
      const Token token = Sample(logits_.row(i), options_.sampling, out_.tokens.size());
      const bool confirmed = i < draft.size() && token == draft[i];
      if (confirmed) ++out_.accepted;
      if (!Accept(token)) return false;
      if (confirmed) continue;
      AdaptDraft(draft.size(), i);
      break;
    }
    KVG_RETURN(CutContext());
    return true;
  }

  std::vector<Token> Draft(size_t room) const {
    if (!use_drafts_) return {};
    const size_t wanted = options_.max_tokens - out_.tokens.size() - 1;
    return index_.Find(std::min({draft_rows_ - 1, wanted, room - 1}));
  }

  // The spare rows of one quantum cost nothing. More rows do, where the quantum is small, and are
  // taken as long as whole drafts come true.
  void AdaptDraft(size_t n_draft, size_t n_confirmed) {
    const size_t quantum = context_.options().row_quantum;
    if (n_draft == 0) return;
    if (n_confirmed < n_draft) {
      draft_rows_ = quantum;
    } else if (draft_rows_ * 2 <= kMaxDraftRows) {
      draft_rows_ *= 2;
    }
  }

  // Takes a chosen token over; false when the generation ends with it.
  bool Accept(Token token) {
    if (!options_.ignore_eos && model_.IsEndOfGeneration(token)) {
      out_.end_of_generation = true;
      Emit(stream_.Flush());
      Finish("stop");
      return false;
    }
    token_offsets_.push_back(stream_.pushed_bytes());
    out_.tokens.push_back(token);
    if (use_drafts_) index_.Append(token);
    const bool go_on = Emit(stream_.Push(model_.TokenText(token, false)));
    if (stream_.stopped()) {
      // Tokens from the stop string's first byte on go.
      while (!out_.tokens.empty() &&
             token_offsets_[out_.tokens.size() - 1] >= stream_.stop_offset())
        out_.tokens.pop_back();
      Finish("stop");
      return false;
    }
    if (!go_on) {
      out_.text += stream_.Flush();  // so that text is what the tokens say
      Finish("cancelled");
      return false;
    }
    if (out_.tokens.size() == options_.max_tokens) {
      Emit(stream_.Flush());
      Finish("length");
      return false;
    }
    return true;
  }

  bool Emit(const std::string& text) {
    out_.text += text;
    return text.empty() || !options_.on_text || options_.on_text(text);
  }

  void Finish(const char* reason) { out_.finish_reason = reason; }

  // Cuts the context back to all tokens but the last, or to all at the end of generation.
  Status CutContext() {
    const size_t n = out_.tokens.size();
    const size_t want = n_before_ + (out_.end_of_generation || n == 0 ? n : n - 1);
    if (static_cast<size_t>(context_.n_past()) <= want) return Status::Ok();
    const Status cut = context_.Truncate(static_cast<engine::Pos>(want));
    if (cut.code() == Code::kUnsupported && options_.schedule == Schedule::kFast)
      return Status::Ok();
    return cut;
  }

  engine::Context& context_;
  const engine::Model& model_;
  const GenerateOptions& options_;
  bool use_drafts_ = false;
  size_t draft_rows_ = 1;  // rows of a step with a draft: a multiple of the quantum
  size_t n_before_ = 0;    // tokens of the context, the prompt included
  Generation out_;
  StopStream stream_;
  std::vector<size_t> token_offsets_;  // where each token begins in the stream of bytes
  DraftIndex index_;
  engine::Logits logits_;
};

}  // namespace

Result<Generation> Generate(engine::Context& context, const engine::Model& model,
                            std::span<const Token> history, std::span<const Token> prompt,
                            const GenerateOptions& options,
                            const engine::Progress& prefill_progress) {
  KVG_RETURN(CheckOptions(options, prompt.size()));
  return Generator(context, model, options).Run(history, prompt, prefill_progress);
}

}  // namespace kvgraft::session
