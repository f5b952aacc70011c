// How documents and questions become tokens. A prompt is a list of segments, each tokenised on its
// own, so a cut between captured document and question falls on the same tokens whether the
// document is computed or grafted. Template text may hold special tokens; users' text never does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

struct Segment {
  std::string text;
  bool special = false;  // parse special tokens in it
};

// The tokens of the segments one after the other; BOS first if `bos` and the model wants one, and
// once only, also when the template's own text begins with it.
Result<std::vector<engine::Token>> TokenizeSegments(const engine::Model& model,
                                                    std::span<const Segment> segments, bool bos);

// The head ends inside a user's turn that is still open (kind "chat") or with plain text ("raw"):
// what follows is always the question, then `suffix`.
struct DocumentPrompt {
  std::vector<Segment> head;  // what is captured
  std::string kind;           // "chat" or "raw", as Manifest::prompt_kind
  std::string suffix;         // template text after the question, as Manifest::prompt_suffix
};

// A document as the start of a user's turn: template head, optional system text, document, blank
// line. The question and `suffix` follow later. Models without a chat template, or raw: the
// document alone, and an empty suffix; a system text is then kInvalidArgument, since there is no
// place for it. kUnsupported: the template drops, repeats or reorders texts.
Result<DocumentPrompt> BuildDocumentPrompt(const engine::Model& model, std::string_view document,
                                           std::string_view system, bool raw);

// A chat up to and with its last message, and the template text that opens a further user's turn
// after it; kind "chat", and a suffix that opens the assistant's turn after that user's message.
// Models without a chat template: "role: content" and a blank line each, as plain text, kind "raw".
// kInvalidArgument without messages or with an empty role; kUnsupported as above.
Result<DocumentPrompt> BuildChatPrompt(const engine::Model& model,
                                       std::span<const engine::ChatMessage> messages);

// The segments that follow a DocumentPrompt (or an artifact with its kind and suffix) for a
// question.
std::vector<Segment> QuestionSegments(std::string_view kind, std::string_view suffix,
                                      std::string_view question);

// The segments that follow a generated answer, whose end-of-generation token is not in the context,
// to ask again: the template text that closes the assistant's turn and opens the user's, the
// question, the text that opens the assistant's. The answer's own tokens stay as generated, so
// nothing before them is tokenised or computed again. Raw, or without a chat template: the
// question.
Result<std::vector<Segment>> NextTurnSegments(const engine::Model& model, std::string_view kind,
                                              std::string_view question);

}  // namespace kvgraft::session
