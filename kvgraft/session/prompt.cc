#include "kvgraft/session/prompt.h"

#include <utility>

#include "kvgraft/core/hash.h"

namespace kvgraft::session {
namespace {

using engine::ChatMessage;
using engine::Model;
using engine::Token;

constexpr std::string_view kChat = "chat";
constexpr std::string_view kRaw = "raw";

// Letters and digits only, so that no template trims, escapes or splits it. Contents never pass
// through the template, only sentinels do; that none occurs in a content all the same keeps the
// result the same under a template that looks into its messages.
std::string Sentinel(size_t index, std::span<const ChatMessage> messages) {
  Sha256 hash;
  for (const ChatMessage& m : messages) {
    hash.Update(std::to_string(m.content.size()) + ":");
    hash.Update(m.content);
  }
  const std::string seed = hash.Finish() + "/" + std::to_string(index) + "/";
  for (int attempt = 0;; ++attempt) {
    const std::string sentinel =
        "KVG" + Sha256Hex(std::string_view(seed + std::to_string(attempt))).substr(0, 32);
    bool free = true;
    for (const ChatMessage& m : messages) free &= m.content.find(sentinel) == std::string::npos;
    if (free) return sentinel;
  }
}

// The template's text before, between and after the contents of `messages`, the assistant's turn
// opened at the end: messages.size() + 1 parts.
Result<std::vector<std::string>> TemplateParts(const Model& model,
                                               std::span<const ChatMessage> messages) {
  std::vector<ChatMessage> marked(messages.begin(), messages.end());
  for (size_t i = 0; i < marked.size(); ++i) marked[i].content = Sentinel(i, messages);
  KVG_ASSIGN(const std::string text, model.ApplyChatTemplate(marked, true));
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t i = 0; i < marked.size(); ++i) {
    const std::string& sentinel = marked[i].content;
    const size_t found = text.find(sentinel);
    const char* wrong = nullptr;
    if (found == std::string::npos)
      wrong = "drops";
    else if (found < at)
      wrong = "reorders";
    else if (text.find(sentinel, found + 1) != std::string::npos)
      wrong = "repeats";
    if (wrong != nullptr)
      return Status(Code::kUnsupported, "prompt: the chat template of '" + model.info().name +
                                            "' " + wrong + " the text of message " +
                                            std::to_string(i + 1) + " of " +
                                            std::to_string(marked.size()) + " (" + marked[i].role +
                                            "); leave that message out, or capture raw");
    parts.push_back(text.substr(at, found - at));
    at = found + sentinel.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

void Add(std::vector<Segment>& segments, std::string_view text, bool special) {
  if (!text.empty()) segments.push_back({std::string(text), special});
}

}  // namespace

Result<std::vector<Token>> TokenizeSegments(const Model& model, std::span<const Segment> segments,
                                            bool bos) {
  size_t first = 0;
  while (first < segments.size() && segments[first].text.empty()) ++first;
  if (first == segments.size()) return model.Tokenize("", bos, false);
  std::vector<Token> tokens;
  for (size_t i = first; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    if (s.text.empty()) continue;
    KVG_ASSIGN(std::vector<Token> more, model.Tokenize(s.text, false, s.special));
    if (i == first && bos) {
      KVG_ASSIGN(std::vector<Token> with_bos, model.Tokenize(s.text, true, s.special));
      // Template text may begin with BOS itself: then it has been put there twice.
      const bool twice = s.special && with_bos.size() == more.size() + 1 && !more.empty() &&
                         with_bos[0] == more[0] && with_bos.size() > 1 && with_bos[1] == more[0];
      if (!twice) more = std::move(with_bos);
    }
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

Result<DocumentPrompt> BuildDocumentPrompt(const Model& model, std::string_view document,
                                           std::string_view system, bool raw) {
  DocumentPrompt prompt;
  if (raw || !model.info().has_chat_template) {
    if (!system.empty())
      return Status(Code::kInvalidArgument,
                    raw ? "prompt: a raw prompt has no place for a system text; leave it out, or "
                          "put it at the start of the document"
                        : "prompt: model '" + model.info().name +
                              "' has no chat template, so no place for a system text; leave it "
                              "out, or put it at the start of the document");
    prompt.kind = kRaw;
    Add(prompt.head, document, false);
    return prompt;
  }
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", std::string(system)});
  messages.push_back({"user", std::string(document)});
  KVG_ASSIGN(const std::vector<std::string> parts, TemplateParts(model, messages));
  for (size_t i = 0; i < messages.size(); ++i) {
    Add(prompt.head, parts[i], true);
    Add(prompt.head, messages[i].content, false);
  }
  // A segment of its own: the document's tokens do not depend on what follows.
  Add(prompt.head, "\n\n", false);
  prompt.kind = kChat;
  prompt.suffix = parts.back();
  return prompt;
}

Result<DocumentPrompt> BuildChatPrompt(const Model& model, std::span<const ChatMessage> messages) {
  if (messages.empty())
    return Status(Code::kInvalidArgument, "prompt: a chat without messages, expected 1 or more");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role.empty())
      return Status(Code::kInvalidArgument, "prompt: message " + std::to_string(i + 1) +
                                                " has no role, expected system, user or assistant");
  }
  DocumentPrompt prompt;
  if (!model.info().has_chat_template) {
    prompt.kind = kRaw;
    for (const ChatMessage& m : messages)
      Add(prompt.head, m.role + ": " + m.content + "\n\n", false);
    return prompt;
  }
  std::vector<ChatMessage> with_question(messages.begin(), messages.end());
  with_question.push_back({"user", ""});
  KVG_ASSIGN(const std::vector<std::string> parts, TemplateParts(model, with_question));
  for (size_t i = 0; i < messages.size(); ++i) {
    Add(prompt.head, parts[i], true);
    Add(prompt.head, messages[i].content, false);
  }
  Add(prompt.head, parts[messages.size()], true);
  prompt.kind = kChat;
  prompt.suffix = parts.back();
  return prompt;
}

std::vector<Segment> QuestionSegments(std::string_view kind, std::string_view suffix,
                                      std::string_view question) {
  std::vector<Segment> segments;
  Add(segments, question, false);
  if (kind == kChat) Add(segments, suffix, true);
  return segments;
}

Result<std::vector<Segment>> NextTurnSegments(const Model& model, std::string_view kind,
                                              std::string_view question) {
  std::vector<Segment> segments;
  if (kind != kChat || !model.info().has_chat_template) {
    Add(segments, question, false);
    return segments;
  }
  const std::vector<ChatMessage> messages = {
      {"user", ""}, {"assistant", ""}, {"user", std::string(question)}};
  KVG_ASSIGN(const std::vector<std::string> parts, TemplateParts(model, messages));
  Add(segments, parts[2], true);
  Add(segments, question, false);
  Add(segments, parts[3], true);
  return segments;
}

}  // namespace kvgraft::session
