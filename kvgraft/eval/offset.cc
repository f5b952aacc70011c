#include "kvgraft/eval/offset.h"

#include <algorithm>
#include <cmath>

#include "kvgraft/core/stopwatch.h"
#include "kvgraft/eval/corpus.h"
#include "kvgraft/eval/prove.h"
#include "kvgraft/eval/restore_request.h"
#include "kvgraft/graft/move.h"
#include "kvgraft/session/compose.h"
#include "kvgraft/session/image_buffer.h"

namespace kvgraft::eval {
namespace {

using engine::Context;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

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
    return session::CheckMovable(*context_).Annotate("offset");
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
    ImageBuffer moved = at_0_;
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
  ImageBuffer at_0_;
  Logits fresh_;
};

// Mean and its standard error.
OffsetSummary::Difference MeanOf(const std::vector<double>& values) {
  OffsetSummary::Difference out;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) out.mean += v / n;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  if (n > 1) out.error = std::sqrt(squares / (n - 1) / n);
  return out;
}

OffsetSummary::Arm SummariseArm(const std::vector<OffsetItem>& items, OffsetArm OffsetItem::*arm) {
  OffsetSummary::Arm out;
  std::vector<double> kls;
  for (const OffsetItem& item : items) {
    const OffsetArm& a = item.*arm;
    kls.push_back(a.kl);
    out.kl_max = std::max(out.kl_max, a.kl_max);
    out.top1 += static_cast<double>(a.top1) / item.n_scored / static_cast<double>(items.size());
  }
  const OffsetSummary::Difference mean = MeanOf(kls);
  out.kl = mean.mean;
  out.kl_error = mean.error;
  return out;
}

OffsetSummary::Difference Paired(const std::vector<OffsetItem>& items,
                                 OffsetArm OffsetItem::*other) {
  std::vector<double> differences;
  for (const OffsetItem& item : items) differences.push_back(item.moved.kl - (item.*other).kl);
  return MeanOf(differences);
}

OffsetSummary SummariseOffset(const std::vector<OffsetItem>& items) {
  OffsetSummary s;
  s.offset = items[0].offset;
  s.texts = static_cast<uint32_t>(items.size());
  s.has_shift = true;
  for (const OffsetItem& item : items) {
    s.tokens += item.n_scored;
    s.has_shift = s.has_shift && item.has_shift;
  }
  s.fresh = SummariseArm(items, &OffsetItem::fresh);
  s.moved = SummariseArm(items, &OffsetItem::moved);
  s.shift = SummariseArm(items, &OffsetItem::shift);
  s.moved_minus_fresh = Paired(items, &OffsetItem::fresh);
  s.moved_minus_shift = Paired(items, &OffsetItem::shift);
  return s;
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
  std::vector<std::vector<OffsetItem>> groups;  // by offset, in the order of their first items
  for (const OffsetItem& item : items) {
    auto at = std::find_if(groups.begin(), groups.end(), [&](const std::vector<OffsetItem>& g) {
      return g[0].offset == item.offset;
    });
    if (at == groups.end()) at = groups.insert(groups.end(), std::vector<OffsetItem>());
    at->push_back(item);
  }
  std::vector<OffsetSummary> out;
  for (const std::vector<OffsetItem>& group : groups) out.push_back(SummariseOffset(group));
  return out;
}

}  // namespace kvgraft::eval
