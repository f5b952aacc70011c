#include "kvgraft/session/draft.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace kvgraft::session {
namespace {

using engine::Token;
using Tokens = std::vector<Token>;

// The definition, by scanning.
Tokens Scan(const Tokens& t, size_t max_draft, const DraftOptions& options) {
  for (size_t n = options.max_ngram; n >= options.min_ngram; --n) {
    if (t.size() <= n) continue;
    for (size_t end = t.size() - 1; end >= n; --end) {
      if (!std::equal(t.end() - n, t.end(), t.begin() + (end - n))) continue;
      Tokens draft;
      for (size_t i = end; draft.size() < max_draft; ++i)
        draft.push_back(i < t.size() ? t[i] : draft[i - t.size()]);
      return draft;
    }
  }
  return {};
}

TEST(Draft, LatestOccurrenceOfTheLongestSuffix) {
  const Tokens t = {1, 2, 3, 4, 9, 9, 2, 3, 7, 7, 1, 2, 3};
  EXPECT_EQ(FindDraft(t, 3), (Tokens{4, 9, 9}));                                    // "1 2 3"
  EXPECT_EQ(FindDraft(t, 3, {.max_ngram = 2, .min_ngram = 2}), (Tokens{7, 7, 1}));  // "2 3"
  EXPECT_EQ(FindDraft(t, 0), Tokens{});
}

TEST(Draft, NoneWithoutAnEarlierOccurrence) {
  EXPECT_EQ(FindDraft({}, 5), Tokens{});
  EXPECT_EQ(FindDraft(Tokens{1}, 5), Tokens{});
  EXPECT_EQ(FindDraft(Tokens{1, 2}, 5), Tokens{});
  EXPECT_EQ(FindDraft(Tokens{1, 2, 3, 4, 1}, 5), Tokens{});  // one token is below min_ngram
  EXPECT_EQ(FindDraft(Tokens{1, 2, 3, 4, 1}, 2, {.min_ngram = 1}), (Tokens{2, 3}));
}

TEST(Draft, GoesRoundAtTheEnd) {
  EXPECT_EQ(FindDraft(Tokens{5, 6, 5, 6}, 5), (Tokens{5, 6, 5, 6, 5}));
  EXPECT_EQ(FindDraft(Tokens{8, 8, 8}, 4), (Tokens{8, 8, 8, 8}));
}

TEST(Draft, EqualsTheScanOnRandomTexts) {
  std::mt19937_64 random(1);
  for (const DraftOptions& options : {DraftOptions{}, DraftOptions{3, 1}, DraftOptions{6, 3}}) {
    DraftIndex index(options);
    Tokens t;
    size_t found = 0;
    for (int i = 0; i < 600; ++i) {
      t.push_back(static_cast<Token>(random() % 5));
      index.Append(t.back());
      const Tokens draft = index.Find(7);
      ASSERT_EQ(draft, Scan(t, 7, options)) << i;
      found += draft.size();
    }
    EXPECT_GT(found, 1000u);
  }
}

// A rescan for every token would take minutes here.
TEST(Draft, LongHistoriesAreCheap) {
  std::mt19937_64 random(2);
  DraftIndex index;
  const auto start = std::chrono::steady_clock::now();
  size_t found = 0;
  for (int i = 0; i < 200000; ++i) {
    index.Append(static_cast<Token>(random() % 100));
    found += index.Find(7).size();
  }
  EXPECT_GT(found, 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace kvgraft::session
