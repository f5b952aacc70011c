// What people give to be captured or asked about: a file, standard input, a text, or chat messages.
#pragma once

#include <string>
#include <vector>

#include "kvgraft/core/status.h"
#include "kvgraft/engine/engine.h"
#include "kvgraft/session/prompt.h"

namespace kvgraft::app {

struct Source {
  std::string text;                           // a document; kept byte for byte
  std::vector<engine::ChatMessage> messages;  // or a chat; not both
  std::string system;                         // with a document only
  bool raw = false;                           // no chat template around the document
  bool empty() const { return text.empty() && messages.empty(); }
};

// The file's bytes, standard input for "-". Must be UTF-8 (kInvalidArgument says where it is not)
// and at most 1 GiB.
Result<std::string> ReadDocument(const std::string& path);

// A JSON array of {"role","content"} with text contents.
Result<std::vector<engine::ChatMessage>> ParseMessages(const std::string& json);

// Offset of the first byte that is not UTF-8; npos: all is.
size_t FindInvalidUtf8(std::string_view text);

// What a source is as tokens, and how a prompt goes on after it.
struct Prepared {
  session::DocumentPrompt prompt;
  std::vector<engine::Token> tokens;  // of prompt.head, BOS included where the model wants one
  std::string text;                   // source text to keep with the artifact
};
Result<Prepared> Prepare(const engine::Model& model, const Source& source);

}  // namespace kvgraft::app
