// Questions over several short texts whose answers are planted facts: in one of the texts, or in
// two that have to be joined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft::eval {

struct ComposeQuestion {
  std::string id, kind;             // kind "one" or "two": texts that hold the answer
  std::vector<std::string> chunks;  // 2 to 6 texts
  std::string question;
  std::vector<std::string> answers;  // any of them is right; the first is scored as text
  // The start of the answer, given to the model, so that small models come to the point at once:
  // the answer follows it after a space. May be empty.
  std::string prefix;
};

// A JSON object a line, with these fields ("prefix" may be missing): kInvalidArgument names the
// line and what is wrong with it. Blank lines are left out.
Result<std::vector<ComposeQuestion>> ParseComposeQuestions(std::string_view jsonl);

// 6 questions of each kind for each group, over the built-in texts: the same for the same seed.
std::vector<ComposeQuestion> BuiltInComposeQuestions(uint32_t n_groups, uint64_t seed);

// Whether `text` contains one of the answers, as words: case, punctuation and articles aside.
bool ContainsAnswer(std::string_view text, const std::vector<std::string>& answers);

}  // namespace kvgraft::eval
