#include <gtest/gtest.h>

#include "kvgraft/store/store.h"

namespace kvgraft::store {
namespace {

TEST(CheckName, AcceptsOrdinaryNames) {
  for (const char* name : {"a", "README.md", "my-doc_2", "v1.2.3", "0", "console", "comet", "COM10",
                           "a..b", "deadbeef"}) {
    EXPECT_TRUE(CheckName(name).ok()) << name;
  }
  EXPECT_TRUE(CheckName(std::string(128, 'x')).ok());
}

// llama.cpp#26316: a name from a request walked out of the folder of saved states. Every way out,
// and every name that another system reads differently, is refused.
TEST(CheckName, RefusesWhatCouldLeaveTheFolder) {
  const std::string_view names[] = {
      "",
      ".",
      "..",
      "../x",
      "/abs",
      "a/../b",
      "a\\..\\b",
      "%2e%2e",
      "%2e%2e%2fx",
      std::string_view("a\0b", 3),
      std::string_view("\0", 1),
      "a\nb",
      "a\n",
      "a\tb",
      "a b",
      "CON",
      "con",
      "con.txt",
      "NUL",
      "nul.kvg",
      "AUX",
      "PRN",
      "COM1",
      "lpt9.x",
      "trailing.",
      ".hidden",
      "-flag",
      "_x",
      "c:x",
      "a*b",
      "~",
      "~root",
      "$HOME",
      "\xe2\x80\xa4\xe2\x80\xa4/x",  // one dot leaders, look like ".."
      "a\xef\xbc\x8f"
      "b",  // full-width solidus
      "\xd0\xb0"
      "bc",         // Cyrillic a
      "e\xcc\x81",  // combining accent
      "a\xe2\x80\xae"
      "b",         // right-to-left override
      "\xff\xfe",  // not UTF-8
  };
  for (std::string_view name : names) {
    const Status status = CheckName(name);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    // The message itself must be harmless on a terminal and in a log.
    for (unsigned char c : status.message()) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << name;
  }
  EXPECT_FALSE(CheckName(std::string(129, 'x')).ok());
  EXPECT_FALSE(CheckName(std::string(300, 'x')).ok());
  EXPECT_LT(CheckName(std::string(100'000, 'x')).message().size(), 300u);
}

TEST(CheckName, RefusesWhatLooksLikeAnId) {
  EXPECT_FALSE(CheckName(std::string(64, 'a')).ok());
  EXPECT_FALSE(CheckName(std::string(64, 'A')).ok());
  EXPECT_TRUE(CheckName(std::string(63, 'a')).ok());
  EXPECT_TRUE(CheckName(std::string(64, 'g')).ok());
}

}  // namespace
}  // namespace kvgraft::store
