// kvgraft chat: a conversation on the terminal, saved exactly when asked to.
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "kvgraft/app/chat.h"
#include "kvgraft/app/document.h"
#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct ChatFlags {
  app::ChatOptions options;
  GenerateFlags generate;
};

constexpr char kHelp[] =
    "/save NAME  store the conversation as an artifact\n"
    "/stats      tokens, context, tier\n"
    "/help       this\n"
    "/exit       end (so does Ctrl-D); Ctrl-C stops an answer\n";

// A line of standard input without its newline; nullopt at its end or when interrupted.
std::optional<std::string> ReadLine() {
  std::string line;
  for (;;) {
    const int c = std::fgetc(stdin);
    if (c == EOF) {
      std::clearerr(stdin);
      if (line.empty()) return std::nullopt;
      return line;
    }
    if (c == '\n') return line;
    line += static_cast<char>(c);
  }
}

std::string StatsLine(const app::ChatStats& stats) {
  return FormatCount(stats.tokens) + " of " + FormatCount(stats.n_ctx) + " tokens, " +
         FormatCount(stats.tokens_reused) + " from the artifact (" + stats.tier + "), " +
         FormatCount(stats.tokens_exact) + " exact, " + std::to_string(stats.turns) + " turns";
}

class Repl {
 public:
  Repl(Shell& shell, app::ChatSession& session) : shell_(shell), session_(session) {}

  Status Run() {
    const bool prompt = isatty(STDIN_FILENO) != 0 && shell_.console.err_is_terminal();
    if (prompt) shell_.console.Note("/help tells what there is; Ctrl-D ends");
    while (!done_) {
      if (prompt) std::fprintf(stderr, "> ");
      auto line = ReadLine();
      if (Interrupted()) {
        if (!prompt) return Status(Code::kCancelled, "chat: interrupted");
        std::fprintf(stderr, "\n");
        ClearInterrupt();
        continue;
      }
      if (!line) break;
      if (line->empty()) continue;
      Status status = line->front() == '/' ? Command(*line) : Say(*line);
      if (!status.ok()) {
        // A script must notice; a person can go on.
        if (!prompt) return status.Annotate("chat");
        shell_.console.PrintError(status);
      }
    }
    return Status::Ok();
  }

  Json ToJson() const {
    const app::ChatStats stats = session_.stats();
    Json json;
    json["turns"] = turns_;
    json["saved"] = saved_;
    json["tokens"] = stats.tokens;
    json["tokens_reused"] = stats.tokens_reused;
    json["tokens_exact"] = stats.tokens_exact;
    json["n_ctx"] = stats.n_ctx;
    json["tier"] = stats.tier;
    return json;
  }

 private:
  Status Say(const std::string& line) {
    if (app::FindInvalidUtf8(line) != std::string_view::npos) {
      return Status(Code::kInvalidArgument, "the line is not UTF-8");
    }
    auto answer = session_.Turn(line, [this](std::string_view text) {
      shell_.console.Print(text);
      return !Interrupted();
    });
    if (!answer.ok()) return answer.status();
    shell_.console.Print("\n");
    ClearInterrupt();
    turns_.push_back({{"question", line},
                      {"answer", answer->text},
                      {"tokens_generated", answer->tokens.size()},
                      {"finish_reason", answer->finish_reason},
                      {"first_token_ms", answer->first_token_ms}});
    return Status::Ok();
  }

  Status Command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string verb = line.substr(0, space);
    const std::string argument = space == line.npos ? "" : line.substr(space + 1);
    if (verb == "/exit" || verb == "/quit") {
      done_ = true;
    } else if (verb == "/help") {
      shell_.console.Print(kHelp);
    } else if (verb == "/stats") {
      shell_.console.PrintLine(StatsLine(session_.stats()));
    } else if (verb == "/save") {
      KVG_ASSIGN(store::Entry entry, session_.Save(argument));
      saved_.push_back(EntryJson(entry));
      shell_.console.PrintLine("saved " + ShortId(entry.id) + " " + argument + ": " +
                               FormatCount(entry.n_tokens) + " tokens, " +
                               FormatBytes(entry.file_bytes));
    } else {
      return Status(Code::kInvalidArgument, verb + " is not a command; /help tells what there is");
    }
    return Status::Ok();
  }

  Shell& shell_;
  app::ChatSession& session_;
  bool done_ = false;
  Json turns_ = Json::array(), saved_ = Json::array();
};

Status RunVerb(Shell& shell, ChatFlags& flags) {
  KVG_ASSIGN(flags.options.generate, MakeGenerateOptions(shell, flags.generate));
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  auto session = app::ChatSession::Start(*runtime, flags.options);
  if (!session.ok()) return session.status().Annotate("chat");
  Repl repl(shell, **session);
  KVG_RETURN(repl.Run());
  if (shell.console.json) shell.console.PrintJson(repl.ToJson());
  return Status::Ok();
}

}  // namespace

void AddChatVerbs(Shell& shell) {
  CLI::App* verb = AddVerb(shell, "chat", "talk; /save NAME keeps the conversation's state");
  auto flags = std::make_shared<ChatFlags>();
  verb->add_option("--graft", flags->options.graft, "start from this artifact")->type_name("REF");
  verb->add_option("--system", flags->options.system, "system text")->type_name("TEXT");
  verb->add_flag("--raw", flags->options.raw, "no chat template");
  AddGenerateFlags(verb, &flags->generate);
  AddModelFlags(verb, shell);
  AddStoreFlags(verb, shell);
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });
}

}  // namespace kvgraft::cli
