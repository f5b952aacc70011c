#include "kvgraft/eval/offset.h"

#include <algorithm>
#include <cmath>

#include "kvgraft/core/stopwatch.h"
#include "kvgraft/eval/corpus.h"
#include "kvgraft/eval/prove.h"
#include "kvgraft/graft/move.h"
#include "kvgraft/session/image_buffer.h"

namespace kvgraft::eval {
namespace {

using engine::Context;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

size_t Argmax(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

OffsetArm Score(const Logits& there, const Logits& arm) {
  OffsetArm out;
  for (size_t i = 0; i < there.rows; ++i) {
    const double kl = KlDivergence(there.row(i), arm.row(i));
    out.kl += kl / static_cast<double>(there.rows);
    out.kl_max = std::max(out.kl_max, kl);
    out.top1 += Argmax(there.row(i)) == Argmax(arm.row(i)) ? 1 : 0;
  }
  return out;
}

class Measurement {
 public:
  Measurement(engine::Model& model, const OffsetOptions& options)
      : model_(model), options_(options), corpus_(options.texts) {}

  Status Start() {
    const auto bad = [](const std::string& what) {
      return Status(Code::kInvalidArgument, "offset: " + what);
    };
    const uint32_t alignment = model_.info().state_alignment;
    if (options_.n_context < 2 || options_.n_context % alignment != 0) {
      return bad(std::to_string(options_.n_context) + " tokens to move; expected a multiple of " +
                 std::to_string(alignment));
    }
    if (options_.n_scored < 1 || options_.n_scored > 256) {
      return bad(std::to_string(options_.n_scored) + " tokens to score; expected 1 .. 256");
    }
    const uint32_t window = model_.info().n_ctx_train;
    for (const Pos p : options_.offsets) {
      if (p < 1) return bad("offset " + std::to_string(p) + "; expected 1 or more");
      if (window > 0 && static_cast<uint64_t>(p) + n_tokens() > window) {
        return bad("offset " + std::to_string(p) + " and " + std::to_string(n_tokens()) +
                   " tokens are more than the model's window of " + std::to_string(window));
      }
    }
    engine::ContextOptions context = options_.context;
    context.n_ctx = n_tokens();
    KVG_ASSIGN(context_, model_.NewContext(context));
    return context_->Layout().status().Annotate("offset");
  }

  // The text at position 0: its state, and the logits of the scored tokens.
  Status Prepare(uint32_t text) {
    Random random(options_.seed * 0x9E3779B97F4A7C15ull + text);
    KVG_ASSIGN(tokens_, model_.Tokenize(corpus_.Draw(random, size_t{n_tokens()} * 8), true, false));
    if (tokens_.size() < n_tokens()) {
      return Status(Code::kInvalidArgument, "offset: text " + std::to_string(text) + " gives " +
                                                std::to_string(tokens_.size()) +
                                                " tokens, expected " + std::to_string(n_tokens()) +
                                                "; add texts");
    }
    tokens_.resize(n_tokens());
    KVG_RETURN(context_->Clear());
    KVG_RETURN(DecodeContext());
    KVG_ASSIGN(at_0_, session::TakeImage(*context_));
    return DecodeScored(&fresh_);
  }

  Status Run(uint32_t text, Pos offset, OffsetItem* item) {
    item->text = text;
    item->offset = offset;
    item->n_scored = options_.n_scored;
    Logits there, arm;
    KVG_RETURN(context_->StartAt(offset));
    KVG_RETURN(DecodeContext());
    KVG_RETURN(DecodeScored(&there));
    item->fresh = Score(there, fresh_);

    const auto end = static_cast<Pos>(options_.n_context);
    session::ImageBuffer moved = at_0_;
    Stopwatch start;
    KVG_ASSIGN(MutableKvView view, context_->ViewImage(MutableByteSpan(moved)));
    KVG_RETURN(graft::MoveKeys(&view, offset, context_->options().n_threads));
    KVG_RETURN(context_->StorePositions(moved, view.positions));
    item->move_ms = start.Ms();
    start = Stopwatch();
    KVG_RETURN(context_->LoadImageAt(moved, offset, end + offset));
    item->load_ms = start.Ms();
    KVG_RETURN(DecodeScored(&arm));
    item->moved = Score(there, arm);

    KVG_RETURN(context_->LoadImage(at_0_, end));
    const Status shifted = context_->ShiftByEngine(offset);
    if (shifted.code() == Code::kUnsupported) return Status::Ok();
    KVG_RETURN(shifted);
    KVG_RETURN(DecodeScored(&arm));
    item->shift = Score(there, arm);
    item->has_shift = true;
    return Status::Ok();
  }

 private:
  uint32_t n_tokens() const { return options_.n_context + options_.n_scored; }
  Status DecodeContext() {
    return context_->Decode(std::span(tokens_).first(options_.n_context), Schedule::kExact, 0,
                            nullptr);
  }
  Status DecodeScored(Logits* logits) {
    return context_->Decode(std::span(tokens_).last(options_.n_scored), Schedule::kExact,
                            options_.n_scored, logits);
  }

  engine::Model& model_;
  const OffsetOptions& options_;
  const Corpus corpus_;
  std::unique_ptr<Context> context_;
  Tokens tokens_;
  session::ImageBuffer at_0_;
  Logits fresh_;
};

void AddArm(const OffsetArm& arm, uint32_t n_scored, OffsetSummary::Arm* sum, double* squares) {
  sum->kl += arm.kl;
  *squares += arm.kl * arm.kl;
  sum->kl_max = std::max(sum->kl_max, arm.kl_max);
  sum->top1 += static_cast<double>(arm.top1) / n_scored;
}

void FinishArm(double n, double squares, OffsetSummary::Arm* arm) {
  arm->kl /= n;
  arm->top1 /= n;
  const double variance = std::max(0.0, squares / n - arm->kl * arm->kl);
  arm->kl_error = n > 1 ? std::sqrt(variance / (n - 1)) : 0;
}

}  // namespace

Result<std::vector<OffsetItem>> MeasureOffsets(engine::Model& model, const OffsetOptions& options,
                                               const OffsetItemDone& on_item) {
  Measurement measurement(model, options);
  KVG_RETURN(measurement.Start());
  std::vector<OffsetItem> items;
  const size_t total = options.n_texts * options.offsets.size();
  for (uint32_t text = 0; text < options.n_texts; ++text) {
    KVG_RETURN(measurement.Prepare(text));
    for (const Pos offset : options.offsets) {
      KVG_RETURN(measurement.Run(text, offset, &items.emplace_back()));
      if (on_item && !on_item(items.back(), items.size(), total)) {
        return Status(Code::kCancelled, "offset: interrupted");
      }
    }
  }
  return items;
}

std::vector<OffsetSummary> Summarise(const std::vector<OffsetItem>& items) {
  std::vector<OffsetSummary> out;
  struct Squares {
    double fresh = 0, moved = 0, shift = 0;
  };
  std::vector<Squares> squares;
  for (const OffsetItem& item : items) {
    auto at = std::find_if(out.begin(), out.end(),
                           [&](const OffsetSummary& s) { return s.offset == item.offset; });
    if (at == out.end()) {
      at = out.insert(out.end(), OffsetSummary());
      at->offset = item.offset;
      at->has_shift = true;
      squares.emplace_back();
    }
    Squares& sq = squares[static_cast<size_t>(at - out.begin())];
    ++at->texts;
    at->tokens += item.n_scored;
    at->has_shift = at->has_shift && item.has_shift;
    AddArm(item.fresh, item.n_scored, &at->fresh, &sq.fresh);
    AddArm(item.moved, item.n_scored, &at->moved, &sq.moved);
    AddArm(item.shift, item.n_scored, &at->shift, &sq.shift);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    FinishArm(out[i].texts, squares[i].fresh, &out[i].fresh);
    FinishArm(out[i].texts, squares[i].moved, &out[i].moved);
    FinishArm(out[i].texts, squares[i].shift, &out[i].shift);
  }
  return out;
}

}  // namespace kvgraft::eval
