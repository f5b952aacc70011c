#include "kvgraft/app/document.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "kvgraft/artifact/artifact.h"

namespace kvgraft::app {
namespace {

struct Closer {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

Status Malformed(const std::string& what) {
  return Status(Code::kInvalidArgument,
                "messages: " + what + "; expected [{\"role\":\"user\",\"content\":\"...\"}, ...]");
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned char lead = byte(i);
    size_t n = lead < 0x80   ? 1
               : lead < 0xC2 ? 0
               : lead < 0xE0 ? 2
               : lead < 0xF0 ? 3
               : lead < 0xF5 ? 4
                             : 0;
    if (n == 0 || i + n > text.size()) return i;
    for (size_t k = 1; k < n; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    }
    // Overlong forms, surrogates, and what lies beyond U+10FFFF.
    if (n >= 3) {
      const unsigned char second = byte(i + 1);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
        return i;
      }
    }
    i += n;
  }
  return std::string_view::npos;
}

Result<std::string> ReadDocument(const std::string& path) {
  const bool standard_input = path == "-";
  const std::string what = standard_input ? "standard input" : "'" + path + "'";
  std::unique_ptr<std::FILE, Closer> file(standard_input ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) {
    const Code code = errno == ENOENT ? Code::kNotFound : Code::kIo;
    return Status(code, what + ": " + std::strerror(errno));
  }
  std::string text;
  char buffer[65536];
  while (size_t n = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    text.append(buffer, n);
    if (text.size() > artifact::kMaxTextBytes) {
      return Status(Code::kInvalidArgument, what + ": more than 1 GiB of text");
    }
  }
  if (std::ferror(file.get()) != 0 && errno == EINTR) {
    return Status(Code::kCancelled, what + ": interrupted");
  }
  if (std::ferror(file.get()) != 0) return Status(Code::kIo, what + ": " + std::strerror(errno));
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return Status(Code::kInvalidArgument, what + ": not UTF-8 at byte " + std::to_string(at) +
                                              "; convert it first, for example with iconv");
  }
  return text;
}

Result<std::vector<engine::ChatMessage>> ParseMessages(const std::string& json) {
  auto root = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (root.is_object() && root.contains("messages")) root = nlohmann::json(root["messages"]);
  if (!root.is_array() || root.empty()) return Malformed("not a JSON array with messages");
  std::vector<engine::ChatMessage> messages;
  for (const auto& item : root) {
    const std::string number = "message " + std::to_string(messages.size() + 1);
    if (!item.is_object() || !item.contains("role") || !item["role"].is_string()) {
      return Malformed(number + " has no role");
    }
    if (!item.contains("content") || !item["content"].is_string()) {
      return Malformed(number + " has no text content");
    }
    messages.push_back({item["role"].get<std::string>(), item["content"].get<std::string>()});
  }
  return messages;
}

Result<Prepared> Prepare(const engine::Model& model, const Source& source) {
  Prepared prepared;
  if (!source.messages.empty()) {
    KVG_ASSIGN(prepared.prompt, session::BuildChatPrompt(model, source.messages));
    auto array = nlohmann::ordered_json::array();
    for (const auto& message : source.messages) {
      array.push_back({{"role", message.role}, {"content", message.content}});
    }
    prepared.text = array.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else {
    KVG_ASSIGN(prepared.prompt,
               session::BuildDocumentPrompt(model, source.text, source.system, source.raw));
    prepared.text = source.text;
    // A question alone: without the blank line that parts it from a document.
    auto& head = prepared.prompt.head;
    if (source.text.empty() && !head.empty() && !head.back().special) head.pop_back();
  }
  KVG_ASSIGN(prepared.tokens, session::TokenizeSegments(model, prepared.prompt.head, /*bos=*/true));
  return prepared;
}

}  // namespace kvgraft::app
