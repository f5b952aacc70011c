// Drafts by look-up in the text itself (prompt-lookup decoding, Saxena 2023): what followed the
// last occurrence of the newest tokens is likely to follow them again. Costs no model.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

struct DraftOptions {
  uint32_t max_ngram = 4;  // >= min_ngram
  uint32_t min_ngram = 2;  // >= 1
};

// The tokens so far, indexed by the place where each n-gram ended last. A token costs one look-up
// per n-gram length, whatever the length of the history; about 50 bytes per distinct n-gram.
class DraftIndex {
 public:
  explicit DraftIndex(const DraftOptions& options = {});

  void Append(engine::Token token);
  void Append(std::span<const engine::Token> tokens);

  // Takes the longest suffix of max_ngram .. min_ngram tokens that occurred before (overlapping
  // included), and of its earlier occurrences the latest. Returns the max_draft tokens after it,
  // going round when they reach the end of the history: after "xyxy" with a match at its first
  // half, "xyxyxy...". Empty without a match.
  std::vector<engine::Token> Find(size_t max_draft) const;

  size_t size() const { return tokens_.size(); }

 private:
  uint32_t min_ngram_, max_ngram_;
  std::vector<engine::Token> tokens_;
  std::unordered_map<uint64_t, uint32_t> last_end_;  // hash of an n-gram and its length: its end
  std::vector<uint32_t> earlier_end_;  // per length: where the suffix ended before, 0 if it did not
};

// DraftIndex over the whole of `history`, once.
std::vector<engine::Token> FindDraft(std::span<const engine::Token> history, size_t max_draft,
                                     const DraftOptions& options = {});

}  // namespace kvgraft::session
