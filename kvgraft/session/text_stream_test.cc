#include "kvgraft/session/text_stream.h"

#include <gtest/gtest.h>

#include <random>

namespace kvgraft::session {
namespace {

const std::string kBad = "\xef\xbf\xbd";

std::string Clean(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.Push(bytes);
  return out + stream.Flush();
}

bool IsUtf8(std::string_view text) { return Clean(text) == text; }

TEST(Utf8Stream, HoldsUnfinishedCharactersBack) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // a, e acute, euro, emoji, z
  Utf8Stream stream;
  std::string out;
  for (char c : text) {
    const std::string part = stream.Push(std::string(1, c));
    EXPECT_EQ(part.find(kBad), std::string::npos);
    EXPECT_TRUE(IsUtf8(out + part)) << out;
    out += part;
  }
  EXPECT_EQ(out, text);
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Utf8Stream, InvalidBytesAreReplaced) {
  EXPECT_EQ(Clean("\x80"), kBad);
  EXPECT_EQ(Clean("a\xff\x62"), "a" + kBad + "b");
  EXPECT_EQ(Clean("\xc3"), kBad);         // unfinished at the end
  EXPECT_EQ(Clean("\xc3("), kBad + "(");  // cannot be completed
  EXPECT_EQ(Clean("\xe2\x82"), kBad);     // one for the unfinished prefix
  EXPECT_EQ(Clean("\xe2\x82X"), kBad + "X");
  EXPECT_EQ(Clean("\xc0\xaf"), kBad + kBad);                        // over-long
  EXPECT_EQ(Clean("\xe0\x80\xaf"), kBad + kBad + kBad);             // over-long
  EXPECT_EQ(Clean("\xed\xa0\x80"), kBad + kBad + kBad);             // surrogate
  EXPECT_EQ(Clean("\xf4\x90\x80\x80"), kBad + kBad + kBad + kBad);  // above U+10FFFF
  EXPECT_EQ(Clean("\xed\x9f\xbf"), "\xed\x9f\xbf");                 // U+D7FF
  EXPECT_EQ(Clean("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");         // U+10FFFF
  // The example of the Unicode Standard, table 3-8.
  EXPECT_EQ(Clean("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
}

TEST(Utf8Stream, InvalidBytesShowAsSoonAsTheyCannotBeCompleted) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xe2"), "");
  EXPECT_EQ(stream.Push("\x28"), kBad + "(");
}

std::string RandomBytes(std::mt19937_64& random, size_t n) {
  // Pieces that meet in many ways: characters of all lengths, their parts, and ASCII.
  static const std::vector<std::string> kPieces = {"a",    "b",    "\xc3\xa9", "\xe2\x82\xac",
                                                   "\xc3", "\xe2", "\x82",     "\xf0\x9f\x98\x80",
                                                   "\xf0", "\xff", "ab",       "\xed\xa0"};
  std::string out;
  while (out.size() < n) out += kPieces[random() % kPieces.size()];
  return out;
}

TEST(Utf8Stream, AnyCutGivesTheSame) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const std::string bytes = RandomBytes(random, 30);
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + random() % 4;
      out += stream.Push(std::string_view(bytes).substr(at, n));
      EXPECT_TRUE(IsUtf8(out));
      at += n;
    }
    out += stream.Flush();
    EXPECT_EQ(out, Clean(bytes));
    EXPECT_TRUE(IsUtf8(out));
  }
}

TEST(StopStream, EndsBeforeTheStopStringAcrossCuts) {
  const std::vector<std::string> stops = {"STOP"};
  StopStream stream(stops);
  EXPECT_EQ(stream.Push("go S"), "go ");
  EXPECT_EQ(stream.Push("TO"), "");
  EXPECT_EQ(stream.Push("O ST"), "STOO ");  // it was none
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.Push("OP more"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.stop_offset(), 8u);
  EXPECT_EQ(stream.Flush(), "");
}

TEST(StopStream, HeldTextComesOutAtTheEnd) {
  const std::vector<std::string> stops = {"\n\nUser:"};
  StopStream stream(stops);
  EXPECT_EQ(stream.Push("Yes.\n\nUse"), "Yes.");
  EXPECT_EQ(stream.Flush(), "\n\nUse");
  EXPECT_FALSE(stream.stopped());
}

TEST(StopStream, SeveralStopStrings) {
  const std::vector<std::string> stops = {"abcd", "bc"};
  StopStream first(stops);  // "bc" is complete before "abcd" is
  EXPECT_EQ(first.Push("xabcd"), "xa");
  EXPECT_EQ(first.stop_offset(), 2u);
  const std::vector<std::string> together = {"c", "abc", "bc"};
  StopStream second(together);
  EXPECT_EQ(second.Push("xabc"), "x");
  EXPECT_EQ(second.stop_offset(), 1u);
}

// A prefix of a stop string that repeats in itself: "aab" in "aaab".
TEST(StopStream, SelfOverlap) {
  const std::vector<std::string> stops = {"aab"};
  StopStream stream(stops);
  std::string out;
  for (char c : std::string("aaab")) out += stream.Push(std::string(1, c));
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.stop_offset(), 1u);
}

TEST(StopStream, AnyCutGivesTheSame) {
  std::mt19937_64 random(2);
  int n_stopped = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const std::string bytes = RandomBytes(random, 40);
    std::vector<std::string> stops;
    for (int i = 0; i < 3; ++i) stops.push_back(RandomBytes(random, 1 + random() % 5));
    StopStream whole(stops);
    std::string expected = whole.Push(bytes);
    if (!whole.stopped()) expected += whole.Flush();

    StopStream cut(stops);
    std::string out;
    for (size_t at = 0; at < bytes.size() && !cut.stopped();) {
      const size_t n = 1 + random() % 4;
      out += cut.Push(std::string_view(bytes).substr(at, n));
      at += n;
    }
    if (!cut.stopped()) out += cut.Flush();
    EXPECT_EQ(out, expected);
    EXPECT_EQ(cut.stopped(), whole.stopped());
    if (whole.stopped()) {
      ++n_stopped;
      EXPECT_EQ(cut.stop_offset(), whole.stop_offset());
      EXPECT_EQ(out, Clean(bytes.substr(0, whole.stop_offset())));
    } else {
      EXPECT_EQ(out, Clean(bytes));
    }
  }
  EXPECT_GT(n_stopped, 100);
  EXPECT_LT(n_stopped, 500);
}

}  // namespace
}  // namespace kvgraft::session
