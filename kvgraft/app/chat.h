// `chat`: turns over one context, started empty or from an artifact, and saved exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/app/runtime.h"
#include "kvgraft/session/generate.h"
#include "kvgraft/store/store.h"

namespace kvgraft::app {

struct ChatOptions {
  std::string graft;   // reference; empty: start with nothing
  std::string system;  // without graft only
  bool raw = false;    // no chat template: texts follow each other
  session::GenerateOptions generate;
};

struct ChatStats {
  uint64_t tokens = 0;         // in the conversation
  uint64_t tokens_reused = 0;  // of these, from the artifact
  uint64_t tokens_exact = 0;   // leading tokens that were computed by the padding rule
  uint32_t n_ctx = 0;
  uint64_t turns = 0;
  std::string tier;  // of the graft; "computed" without
};

class ChatSession {
 public:
  // `runtime` must outlive the session.
  static Result<std::unique_ptr<ChatSession>> Start(Runtime& runtime, const ChatOptions& options);

  // One exchange. kExhausted when the context is full; the conversation is then as before.
  Result<session::Generation> Turn(std::string_view text,
                                   const std::function<bool(std::string_view)>& on_text);

  // Stores the conversation under `name`. What was generated fast is computed again first, through
  // the padded path, so that the artifact is exact.
  Result<store::Entry> Save(const std::string& name);

  ChatStats stats() const;

 private:
  // How a conversation goes on in the model's template: what stands before the first user text,
  // between an assistant's text and the next user text, and after a user text.
  struct Template {
    std::string opening, between, closing;
  };
  explicit ChatSession(Runtime& runtime) : runtime_(runtime) {}
  Status Init(const ChatOptions& options);
  Status FindTemplate(const std::string& system);
  Status Append(std::string_view text, bool special, bool bos,
                std::vector<engine::Token>* out) const;

  Runtime& runtime_;
  ChatOptions options_;
  engine::Model* model_ = nullptr;
  std::unique_ptr<engine::Context> context_;
  Template template_;
  bool templated_ = false;
  std::vector<engine::Token> tokens_;  // of the conversation; the context holds the first n_past
  uint64_t n_exact_ = 0;               // leading tokens whose state is exact
  bool after_answer_ = false;          // the assistant's text has not been closed yet
  std::string parent_, transcript_;
  ChatStats stats_;
};

}  // namespace kvgraft::app
