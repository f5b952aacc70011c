// The built-in documents of corpus.h: original text, written for this purpose. Changing a word
// changes the samples that a seed gives.
#pragma once

#include <string_view>

namespace kvgraft::eval {

extern const std::string_view kCorpusProse;   // essays and stories
extern const std::string_view kCorpusManual;  // instructions, letters, minutes; some not in English
extern const std::string_view kCorpusCode;
extern const std::string_view kCorpusTables;
extern const std::string_view kCorpusChat;

}  // namespace kvgraft::eval
