#include "kvgraft/eval/corpus.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace kvgraft::eval {
namespace {

size_t CountWords(std::string_view text) {
  size_t n = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t';
    n += !space && !in_word ? 1 : 0;
    in_word = !space;
  }
  return n;
}

TEST(CorpusTest, BuiltInTextsAreLongAndOfAllKinds) {
  size_t words = 0;
  std::map<session::TextKind, size_t> bytes;
  for (const session::SampleText& t : BuiltInTexts()) {
    words += CountWords(t.text);
    bytes[t.kind] += t.text.size();
  }
  EXPECT_GE(words, 6000u);
  ASSERT_EQ(bytes.size(), 4u);
  for (const auto& [kind, n] : bytes) EXPECT_GE(n, 5000u) << static_cast<int>(kind);
}

TEST(CorpusTest, DrawsAreLongEnoughDifferentAndRepeatable) {
  const Corpus corpus;
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed), again(seed);
    const std::string text = corpus.Draw(random, 9000);
    EXPECT_GE(text.size(), 9000u);
    EXPECT_EQ(text, corpus.Draw(again, 9000));
    EXPECT_TRUE(seen.insert(text).second);
  }
}

// A periodic prompt hides differences between kernels: no longer piece may come twice in a draw.
TEST(CorpusTest, NothingIsRepeatedWithinADraw) {
  const Corpus corpus;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Random random(seed);
    const std::string text = corpus.Draw(random, corpus.bytes());
    std::set<std::string> pieces;
    for (size_t i = 0; i + 80 <= text.size(); ++i) {
      EXPECT_TRUE(pieces.insert(text.substr(i, 80)).second) << text.substr(i, 80);
    }
  }
}

TEST(CorpusTest, DrawsMixDocuments) {
  const Corpus corpus;
  Random random(3);
  const std::string text = corpus.Draw(random, 9000);
  size_t documents = 0;
  for (const session::SampleText& t : BuiltInTexts()) {
    bool found = false;
    for (size_t i = 0; i + 60 <= t.text.size() && !found; i += 20) {
      found = text.find(t.text.substr(i, 40)) != std::string::npos;
    }
    documents += found ? 1 : 0;
  }
  EXPECT_GE(documents, 5u);
}

TEST(CorpusTest, ExhaustedCorpusReturnsAllOfIt) {
  const Corpus corpus;
  Random random(1);
  const std::string text = corpus.Draw(random, 100 * corpus.bytes());
  EXPECT_GE(text.size(), corpus.bytes());
  EXPECT_LE(text.size(), corpus.bytes() + corpus.bytes() / 10);
}

TEST(CorpusTest, FurtherTextsAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "é";  // no blank, no line end
  const std::vector<std::string> further = {text, "", " \n\n \n"};
  const Corpus corpus(further);
  EXPECT_EQ(corpus.bytes(), Corpus().bytes() + text.size());
  Random random(1);
  const std::string all = corpus.Draw(random, 100 * corpus.bytes());
  size_t found = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<uint8_t>(all[i]) == 0xC3 && i + 1 < all.size() &&
        static_cast<uint8_t>(all[i + 1]) == 0xA9) {
      ++found;
    }
    // A paragraph never starts in the middle of a character.
    if (i >= 2 && all.substr(i - 2, 2) == "\n\n") {
      EXPECT_NE(static_cast<uint8_t>(all[i]) & 0xC0, 0x80);
    }
  }
  EXPECT_GE(found, 5000u);
}

}  // namespace
}  // namespace kvgraft::eval
