// Natural text for trials of the engine: original, heterogeneous, never periodic. Periodic or
// random tokens give states that hide what differs between kernels.
#pragma once

#include <span>
#include <string_view>

namespace kvgraft::session {

enum class TextKind { kProse, kCode, kTable, kChat };

struct SampleText {
  TextKind kind;
  std::string_view text;  // paragraphs are separated by blank lines
};

// One text of each kind, about 1,500 words together.
std::span<const SampleText> SampleTexts();

}  // namespace kvgraft::session
