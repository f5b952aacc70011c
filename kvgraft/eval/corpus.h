// Natural, heterogeneous text to draw prompts from: prose, code, tables and chat, original and
// built in, and what the user adds. A drawn text holds every paragraph at most once, so it is never
// periodic.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/random.h"
#include "kvgraft/session/sample_text.h"

namespace kvgraft::eval {

// The built-in documents: those of session/sample_text.h and more, about 6,000 words together.
std::vector<session::SampleText> BuiltInTexts();

class Corpus {
 public:
  // `further`: documents of any kind; copied.
  explicit Corpus(std::span<const std::string> further = {});

  // Excerpts (runs of paragraphs) of different documents, one after the other, until there are
  // min_bytes or nothing is left.
  std::string Draw(Random& random, size_t min_bytes) const;
  size_t bytes() const { return bytes_; }

 private:
  void Add(std::string_view text);
  std::vector<std::vector<std::string>> documents_;  // paragraphs of each
  size_t bytes_ = 0;
};

}  // namespace kvgraft::eval
