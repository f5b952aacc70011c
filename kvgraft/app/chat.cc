#include "kvgraft/app/chat.h"

#include <algorithm>

#include "kvgraft/app/ask.h"
#include "kvgraft/app/version.h"
#include "kvgraft/session/capture.h"
#include "kvgraft/session/prompt.h"

namespace kvgraft::app {
namespace {

constexpr uint64_t kProbeTokens = 8;
constexpr uint64_t kDefaultContext = 4096;

// Texts that no template changes, to find where it puts the messages.
constexpr char kFirst[] = "kvgraftFIRSTmark", kAnswer[] = "kvgraftANSWERmark",
               kNext[] = "kvgraftNEXTmark";

}  // namespace

Result<std::unique_ptr<ChatSession>> ChatSession::Start(Runtime& runtime,
                                                        const ChatOptions& options) {
  std::unique_ptr<ChatSession> session(new ChatSession(runtime));
  KVG_RETURN(session->Init(options));
  return session;
}

Status ChatSession::FindTemplate(const std::string& system) {
  templated_ = model_->info().has_chat_template && !options_.raw;
  if (!templated_) {
    if (!system.empty()) {
      return Status(Code::kInvalidArgument,
                    "without a chat template there is no place for --system");
    }
    template_ = {"", "\n", "\n"};
    return Status::Ok();
  }
  std::vector<engine::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", kFirst});
  messages.push_back({"assistant", kAnswer});
  messages.push_back({"user", kNext});
  KVG_ASSIGN(std::string text, model_->ApplyChatTemplate(messages, /*add_assistant=*/true));
  const size_t first = text.find(kFirst), answer = text.find(kAnswer), next = text.find(kNext);
  if (first == text.npos || answer == text.npos || next == text.npos || answer < first ||
      next < answer) {
    return Status(Code::kUnsupported,
                  "the model's chat template does not keep messages in order; "
                  "use --raw");
  }
  const size_t after_answer = answer + sizeof(kAnswer) - 1;
  template_.opening = text.substr(0, first);
  template_.between = text.substr(after_answer, next - after_answer);
  template_.closing = text.substr(next + sizeof(kNext) - 1);
  return Status::Ok();
}

Status ChatSession::Append(std::string_view text, bool special, bool bos,
                           std::vector<engine::Token>* out) const {
  const session::Segment segment{std::string(text), special};
  KVG_ASSIGN(std::vector<engine::Token> tokens,
             session::TokenizeSegments(*model_, std::span(&segment, 1), bos));
  out->insert(out->end(), tokens.begin(), tokens.end());
  return Status::Ok();
}

Status ChatSession::Init(const ChatOptions& options) {
  options_ = options;
  KVG_RETURN(session::CheckSampling(options.generate.sampling));
  std::optional<OpenedArtifact> opened;
  if (!options.graft.empty()) {
    if (!options.system.empty()) {
      return Status(Code::kInvalidArgument, "--system has no effect on a grafted conversation");
    }
    KVG_ASSIGN(opened, OpenRef(runtime_, options.graft));
    options_.raw = opened->reader.manifest().prompt_kind != "chat";
  }
  KVG_ASSIGN(model_, runtime_.OpenModel());
  KVG_RETURN(FindTemplate(options.system));
  const uint64_t held = opened ? opened->reader.tokens().size() : 0;
  KVG_ASSIGN(context_, NewContextFor(runtime_, opened ? &opened->reader : nullptr,
                                     std::max(kDefaultContext, held + kDefaultContext / 2),
                                     held + kProbeTokens));
  stats_.tier = "computed";
  if (!opened) return Status::Ok();
  KVG_ASSIGN(session::Grafted grafted,
             GraftInto(runtime_, *context_, *opened, session::ProbePolicy::kFirstInProcess));
  tokens_ = opened->reader.tokens();
  n_exact_ = grafted.tier == "exact" ? tokens_.size() : 0;
  parent_ = opened->entry.id;
  transcript_ = opened->reader.text();
  stats_.tokens_reused = grafted.tokens_reused;
  stats_.tier = grafted.tier;
  if (templated_) template_.closing = opened->reader.manifest().prompt_suffix;
  return Status::Ok();
}

Result<session::Generation> ChatSession::Turn(
    std::string_view text, const std::function<bool(std::string_view)>& on_text) {
  std::vector<engine::Token> all = tokens_;
  if (all.empty()) KVG_RETURN(Append(template_.opening, true, /*bos=*/true, &all));
  if (after_answer_) KVG_RETURN(Append(template_.between, true, false, &all));
  KVG_RETURN(Append(text, /*special=*/false, false, &all));
  KVG_RETURN(Append(template_.closing, true, false, &all));
  const auto held = static_cast<size_t>(context_->n_past());
  const uint64_t n_ctx = context_->n_ctx();
  if (all.size() + 1 > n_ctx) {
    return Status(Code::kExhausted, "the context is full: " + std::to_string(all.size()) +
                                        " tokens are needed, it holds " + std::to_string(n_ctx) +
                                        "; start with a larger -c");
  }
  session::GenerateOptions generate = options_.generate;
  generate.on_text = on_text;
  generate.max_tokens =
      static_cast<uint32_t>(std::min<uint64_t>(generate.max_tokens, n_ctx - all.size() + 1));
  const std::span<const engine::Token> span(all);
  auto result = session::Generate(*context_, *model_, span.first(held), span.subspan(held),
                                  generate, runtime_.hooks().Stage("prefill"));
  if (!result.ok()) {
    // The conversation is as before: what was decoded of this turn is cut off, or, where a state
    // cannot be cut, all of it is computed again by the next turn.
    const auto keep = std::min<engine::Pos>(context_->n_past(), static_cast<engine::Pos>(held));
    if (!context_->Truncate(keep).ok()) KVG_RETURN(context_->Clear());
    n_exact_ = std::min<uint64_t>(n_exact_, static_cast<uint64_t>(context_->n_past()));
    return result;
  }
  all.insert(all.end(), result->tokens.begin(), result->tokens.end());
  if (generate.schedule == engine::Schedule::kExact) {
    if (n_exact_ >= held) n_exact_ = static_cast<uint64_t>(context_->n_past());
  } else {
    // The prompt itself may have been decoded in ordinary batches too.
    n_exact_ = std::min<uint64_t>(n_exact_, held);
  }
  tokens_ = std::move(all);
  after_answer_ = true;
  transcript_ += (transcript_.empty() ? "> " : "\n> ") + std::string(text) + "\n" + result->text;
  ++stats_.turns;
  return result;
}

Result<store::Entry> ChatSession::Save(const std::string& name) {
  if (!name.empty()) KVG_RETURN(store::CheckName(name));
  if (tokens_.empty()) return Status(Code::kInvalidArgument, "there is nothing to save yet");
  KVG_ASSIGN(store::Store * store, runtime_.OpenStore());
  KVG_ASSIGN(session::ExactProfile profile, runtime_.Profile());
  session::CaptureRequest request;
  request.tokens = tokens_;
  if (after_answer_) {
    KVG_RETURN(Append(template_.between, true, false, &request.tokens));
  }
  request.prompt_kind = templated_ ? "chat" : "raw";
  request.prompt_suffix = templated_ ? template_.closing : "";
  request.text = transcript_;
  request.name = name;
  request.parent = parent_;
  request.verified_schedule = profile.holds;
  request.producer = kProducer;
  request.probe = request.tokens.size() + kProbeTokens <= context_->n_ctx();
  if (static_cast<uint64_t>(context_->n_past()) > n_exact_) {
    runtime_.hooks().Note("computing " + std::to_string(request.tokens.size() - n_exact_) +
                          " tokens again by the padding rule, so that the artifact is exact");
    Status cut = context_->Truncate(static_cast<engine::Pos>(n_exact_));
    if (!cut.ok()) KVG_RETURN(context_->Clear());
    n_exact_ = static_cast<uint64_t>(context_->n_past());
  }
  auto captured = session::Capture(*context_, *model_, request, runtime_.hooks().Stage("prefill"));
  n_exact_ = static_cast<uint64_t>(context_->n_past());
  if (!captured.ok()) return captured.status();
  KVG_ASSIGN(store::Entry entry, store->Put(captured->parts, captured->image, name));
  tokens_ = request.tokens;
  after_answer_ = false;
  parent_ = entry.id;
  return entry;
}

ChatStats ChatSession::stats() const {
  ChatStats stats = stats_;
  stats.tokens = tokens_.size();
  stats.tokens_exact = n_exact_;
  stats.n_ctx = context_->n_ctx();
  return stats;
}

}  // namespace kvgraft::app
