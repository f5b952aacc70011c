#include "kvgraft/session/draft.h"

#include <algorithm>

namespace kvgraft::session {

DraftIndex::DraftIndex(const DraftOptions& options)
    : min_ngram_(std::max(1u, options.min_ngram)),
      max_ngram_(std::max(min_ngram_, options.max_ngram)),
      earlier_end_(max_ngram_ - min_ngram_ + 1) {}

void DraftIndex::Append(engine::Token token) {
  tokens_.push_back(token);
  const size_t end = tokens_.size();
  uint64_t hash = 0;
  for (size_t n = 1; n <= max_ngram_; ++n) {
    uint32_t* earlier = n >= min_ngram_ ? &earlier_end_[n - min_ngram_] : nullptr;
    if (earlier != nullptr) *earlier = 0;
    if (n > end) continue;
    // Multiply and fold over the suffix, read backwards; n enters through the number of rounds.
    hash = (hash ^ static_cast<uint32_t>(tokens_[end - n])) * 0x9e3779b97f4a7c15ull + n;
    hash ^= hash >> 29;
    if (earlier == nullptr) continue;
    const auto [it, inserted] = last_end_.try_emplace(hash, static_cast<uint32_t>(end));
    if (inserted) continue;
    // Hashes may collide: compare the tokens.
    if (std::equal(tokens_.end() - n, tokens_.end(), tokens_.begin() + (it->second - n)))
      *earlier = it->second;
    it->second = static_cast<uint32_t>(end);
  }
}

void DraftIndex::Append(std::span<const engine::Token> tokens) {
  tokens_.reserve(tokens_.size() + tokens.size());
  for (engine::Token token : tokens) Append(token);
}

std::vector<engine::Token> DraftIndex::Find(size_t max_draft) const {
  const auto earlier =
      std::find_if(earlier_end_.rbegin(), earlier_end_.rend(), [](uint32_t e) { return e != 0; });
  std::vector<engine::Token> draft;
  if (earlier == earlier_end_.rend()) return draft;
  draft.reserve(max_draft);
  for (size_t i = *earlier; draft.size() < max_draft; ++i)
    draft.push_back(i < tokens_.size() ? tokens_[i] : draft[i - tokens_.size()]);
  return draft;
}

std::vector<engine::Token> FindDraft(std::span<const engine::Token> history, size_t max_draft,
                                     const DraftOptions& options) {
  DraftIndex index(options);
  index.Append(history);
  return index.Find(max_draft);
}

}  // namespace kvgraft::session
