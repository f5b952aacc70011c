// Good and deliberately broken compositions of built-in texts.
#include <algorithm>
#include <memory>

#include "kvgraft/core/random.h"
#include "kvgraft/core/utc.h"
#include "kvgraft/math/divergence.h"
#include "kvgraft/session/compose_internal.h"
#include "kvgraft/session/drift.h"
#include "kvgraft/session/image_buffer.h"
#include "kvgraft/session/sample_text.h"
#include "kvgraft/session/tail_loss.h"

namespace kvgraft::session {
namespace {

using engine::Context;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

// The shortest error of a wrong distance, and what is added to it at random.
constexpr uint64_t kWrongBy = 24, kWrongByMore = 200;

// A piece of text, captured alone.
struct Chunk {
  Tokens tokens;  // the head (BOS or nothing), then the text's
  Tokens next;    // n_scored tokens that follow in the text
  ImageBuffer image;
  size_t n_image = 0;
  std::vector<uint64_t> loss;
};

enum class Way { kGood, kUnrotated, kWrongDistance, kForeignCells, kForeignLink };
constexpr std::pair<Way, const char*> kBadWays[] = {{Way::kUnrotated, "unrotated"},
                                                    {Way::kWrongDistance, "wrong-distance"},
                                                    {Way::kForeignCells, "foreign-cells"},
                                                    {Way::kForeignLink, "foreign-link"}};

class Calibration {
 public:
  Calibration(engine::Model& model, const DriftOptions& options, std::span<const uint32_t> links,
              const engine::Progress& progress)
      : model_(model), options_(options), links_(links), progress_(progress) {}

  Result<std::vector<DriftRecord>> Run() {
    KVG_RETURN(Start());
    for (Chunk& chunk : chunks_) {
      KVG_RETURN(CaptureChunk(&chunk));
      KVG_RETURN(Step());
    }
    std::vector<std::vector<DriftTrial>> trials(links_.size());
    for (uint32_t p = 0; p < options_.n_pairs + options_.n_further; ++p) {
      KVG_RETURN(RunPair(/*with_bad=*/p < options_.n_pairs, &trials));
    }
    std::vector<DriftRecord> records;
    for (size_t l = 0; l < links_.size(); ++l) {
      DriftRecord& r = records.emplace_back(ChooseThreshold(std::move(trials[l])));
      r.link_tokens = links_[l];
      r.created = UtcNow();
    }
    return records;
  }

 private:
  Status Start() {
    KVG_ASSIGN(head_, model_.Tokenize("", /*add_bos=*/true, false));
    KVG_RETURN(CutTexts());
    engine::ContextOptions context = options_.context;
    context.n_ctx = 2 * (options_.chunk_tokens + static_cast<uint32_t>(head_.size()));
    for (const uint32_t link : links_) context.n_ctx = std::max(context.n_ctx, link);
    context.n_ctx += options_.n_scored + 64;
    KVG_ASSIGN(context_, model_.NewContext(context));
    KVG_RETURN(CheckMovable(*context_).Annotate("drift calibration"));
    total_ = chunks_.size() + options_.n_pairs +
             links_.size() * (options_.n_pairs * (std::size(kBadWays) + 1) + options_.n_further);
    return Status::Ok();
  }

  // Pieces of every kind of text, by turns.
  Status CutTexts() {
    const size_t size = options_.chunk_tokens + options_.n_scored;
    std::vector<Tokens> texts;
    for (const SampleText& sample : SampleTexts()) {
      KVG_ASSIGN(Tokens tokens, model_.Tokenize(sample.text, /*add_bos=*/false, false));
      texts.push_back(std::move(tokens));
    }
    bool more = true;
    for (size_t at = 0; more && chunks_.size() < options_.n_chunks; at += size) {
      more = false;
      for (const Tokens& text : texts) {
        if (at + size > text.size() || chunks_.size() == options_.n_chunks) continue;
        more = true;
        Chunk& chunk = chunks_.emplace_back();
        chunk.tokens = head_;
        const auto begin = text.begin() + static_cast<int64_t>(at);
        const auto next = begin + options_.chunk_tokens;
        chunk.tokens.insert(chunk.tokens.end(), begin, next);
        chunk.next.assign(next, next + options_.n_scored);
      }
    }
    for (size_t a = 0; a < chunks_.size(); ++a) {
      for (size_t b = 0; b < chunks_.size(); ++b) {
        if (a != b) pairs_.emplace_back(a, b);
      }
    }
    random_.Shuffle(&pairs_);
    if (chunks_.size() >= 3) return Status::Ok();
    return Status(Code::kUnsupported, "drift calibration: the built-in texts give " +
                                          std::to_string(chunks_.size()) + " pieces of " +
                                          std::to_string(size) + " tokens, 3 are needed");
  }

  Status CaptureChunk(Chunk* chunk) {
    const size_t n = chunk->tokens.size();
    chunk->n_image = n / model_.info().state_alignment * model_.info().state_alignment;
    TailLoss loss(chunk->tokens, TailLoss::FirstRow(n, kHeldTokens));
    KVG_RETURN(context_->Clear());
    KVG_RETURN(loss.Decode(*context_, 0, chunk->n_image));
    KVG_ASSIGN(chunk->image, TakeImage(*context_));
    if (chunk->n_image < n) KVG_RETURN(loss.Decode(*context_, chunk->n_image, n));
    chunk->loss = ToMicronats(loss.values());
    return Status::Ok();
  }

  // The first text as a graft puts it there.
  Status Restore(const Chunk& first) {
    KVG_RETURN(context_->LoadImage(first.image, static_cast<Pos>(first.n_image)));
    const auto tail = std::span<const Token>(first.tokens).subspan(first.n_image);
    if (tail.empty()) return Status::Ok();
    return context_->Decode(tail, Schedule::kExact, 0, nullptr);
  }

  Status RunPair(bool with_bad, std::vector<std::vector<DriftTrial>>* trials) {
    const size_t n = chunks_.size();
    const auto [a, b] = pairs_[n_run_++ % pairs_.size()];
    size_t c = (b + random_.Between(1, n - 1)) % n;
    if (c == a) c = (c + 1) % n == b ? (c + 2) % n : (c + 1) % n;
    Pair pair = {chunks_[a], chunks_[b], chunks_[c], random_.Between(kWrongBy, kWrongByMore), {}};
    if (with_bad) {
      KVG_RETURN(Restore(pair.first));
      const auto behind = std::span<const Token>(pair.second.tokens).subspan(head_.size());
      KVG_RETURN(context_->Decode(behind, Schedule::kExact, 0, nullptr));
      KVG_RETURN(
          context_->Decode(pair.second.next, Schedule::kExact, options_.n_scored, &pair.exact));
      KVG_RETURN(Step());
    }
    for (size_t l = 0; l < links_.size(); ++l) {
      std::vector<DriftTrial>& out = (*trials)[l];
      KVG_RETURN(RunTrial(pair, links_[l], Way::kGood, "good", &out));
      if (!with_bad) continue;
      for (const auto& [way, kind] : kBadWays) {
        if (way == Way::kForeignLink && links_[l] == 0) continue;
        KVG_RETURN(RunTrial(pair, links_[l], way, kind, &out));
      }
    }
    return Status::Ok();
  }

  struct Pair {
    const Chunk& first;
    const Chunk& second;
    const Chunk& other;
    uint64_t wrong_by;
    Logits exact;  // of second.next; no rows: KL is not taken
  };

  Status RunTrial(const Pair& pair, uint32_t link, Way way, const char* kind,
                  std::vector<DriftTrial>* out) {
    KVG_RETURN(Restore(pair.first));
    DriftTrial trial{kind};
    KVG_ASSIGN(const std::vector<double> loss, ComposeSecond(pair, link, way));
    trial.delta = MeanDelta(pair.second.loss, loss);
    if (pair.exact.rows > 0) {
      Logits logits;
      KVG_RETURN(context_->Decode(pair.second.next, Schedule::kExact, options_.n_scored, &logits));
      trial.kl = 0;
      for (size_t i = 0; i < logits.rows; ++i) {
        trial.kl +=
            math::KlDivergence(pair.exact.row(i), logits.row(i)) / static_cast<double>(logits.rows);
      }
    }
    out->push_back(std::move(trial));
    return Step();
  }

  // What Attach does, or does wrongly; the loss of the second text's held tokens.
  Result<std::vector<double>> ComposeSecond(const Pair& pair, uint32_t link, Way way) {
    const Chunk& chunk = pair.second;
    const std::span<const Token> tokens(chunk.tokens);
    const size_t n = tokens.size(), skip = head_.size();
    const auto [first, end, first_row] = PlanAttach(n, chunk.n_image, skip, link, kHeldTokens);
    TailLoss loss(tokens, first_row);
    if (first > skip) {
      TailLoss foreign(pair.other.tokens, n);  // as long as `tokens`
      const bool is_foreign = way == Way::kForeignLink;
      KVG_RETURN((is_foreign ? foreign : loss).Decode(*context_, skip, first));
    }
    if (first == n) return loss.values();
    int64_t turn = int64_t{context_->n_past()} - static_cast<int64_t>(first);
    if (way == Way::kUnrotated) turn = 0;
    if (way == Way::kWrongDistance) turn += static_cast<int64_t>(pair.wrong_by);
    const Chunk& cells = way == Way::kForeignCells ? pair.other : chunk;
    Attached attached;
    KVG_RETURN(AttachCells(*context_, cells.image, cells.n_image, {first, end, turn}, &attached));
    KVG_RETURN(loss.Decode(*context_, end, n));
    return loss.values();
  }

  static double MeanDelta(const std::vector<uint64_t>& stored,
                          const std::vector<double>& composed) {
    DriftRecord none;
    const GateVerdict v = Judge(none, stored, composed);
    return v.judged ? v.delta : std::numeric_limits<double>::infinity();
  }

  Status Step() {
    ++done_;
    if (!progress_ || progress_(done_, std::max(done_, total_))) return Status::Ok();
    return Status(Code::kCancelled, "drift calibration: interrupted");
  }

  engine::Model& model_;
  const DriftOptions& options_;
  const std::span<const uint32_t> links_;
  const engine::Progress& progress_;
  std::unique_ptr<Context> context_;
  Tokens head_;
  std::vector<Chunk> chunks_;
  Random random_{options_.seed};
  std::vector<std::pair<size_t, size_t>> pairs_;  // ordered ones, shuffled
  size_t n_run_ = 0, done_ = 0, total_ = 0;
};

}  // namespace

Result<std::vector<DriftRecord>> CalibrateDrift(engine::Model& model, const DriftOptions& options,
                                                std::span<const uint32_t> link_tokens,
                                                const engine::Progress& progress) {
  return Calibration(model, options, link_tokens, progress).Run();
}

}  // namespace kvgraft::session
