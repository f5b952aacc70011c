// kvgraft ask, kvgraft embed
#include <cmath>
#include <cstdio>

#include "kvgraft/app/ask.h"
#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct AskFlags {
  app::AskOptions options;
  std::vector<std::string> words;  // further grafts, then the question
  std::string file;
  std::optional<std::string> text;
  GenerateFlags generate;
  std::string gate = "on";
  bool no_probe = false, probe = false;
};

Json GateJson(const app::AskReport& report) {
  Json gate = Json::array();
  for (const auto& [artifact, v] : report.gate) {
    gate.push_back({{"artifact", artifact},
                    {"delta", v.judged ? Json(v.delta) : Json(nullptr)},
                    {"threshold", v.threshold},
                    {"passed", v.passed},
                    {"fell_back", report.fell_back},
                    {"held_tokens", v.held_tokens}});
  }
  return gate;
}

Status FillOptions(Shell& shell, AskFlags& flags) {
  app::AskOptions& options = flags.options;
  if (flags.words.empty()) return Status(Code::kInvalidArgument, "ask: a QUESTION is needed");
  options.question = flags.words.back();
  flags.words.pop_back();
  if (options.grafts.empty() && !flags.words.empty()) {
    return Status(Code::kInvalidArgument, "ask: one QUESTION is expected; put it in quotes");
  }
  // "--graft A B QUESTION" is "--graft A --graft B QUESTION".
  options.grafts.insert(options.grafts.end(), flags.words.begin(), flags.words.end());
  if (app::FindInvalidUtf8(options.question) != std::string_view::npos) {
    return Status(Code::kInvalidArgument, "ask: the question is not UTF-8");
  }
  const bool document = !flags.file.empty() || flags.text;
  if (!flags.file.empty() && flags.text) {
    return Status(Code::kInvalidArgument, "ask: --file or --text, not both");
  }
  if (!options.grafts.empty() &&
      (document || !options.source.system.empty() || options.source.raw)) {
    return Status(Code::kInvalidArgument,
                  "ask: --file, --text, --system and --raw have no effect on a grafted artifact");
  }
  if (options.grafts.size() > 1 && options.or_compute) {
    return Status(Code::kInvalidArgument, "ask: --or-compute is for one artifact; give --exact");
  }
  if (options.grafts.size() < 2 && options.exact) {
    return Status(Code::kInvalidArgument, "ask: --exact is for several artifacts");
  }
  if (options.or_compute && options.grafts.empty()) {
    return Status(Code::kInvalidArgument, "ask: --or-compute has no effect without --graft");
  }
  if (options.source.raw && !options.source.system.empty()) {
    return Status(Code::kInvalidArgument, "ask: --system has no effect with --raw");
  }
  if (flags.text) options.source.text = *flags.text;
  if (!flags.file.empty()) {
    KVG_ASSIGN(options.source.text, app::ReadDocument(flags.file));
  }
  if (flags.probe && flags.no_probe) {
    return Status(Code::kInvalidArgument, "ask: --probe or --no-probe, not both");
  }
  options.gate = flags.gate == "on";
  if (flags.no_probe) options.probe = session::ProbePolicy::kNever;
  if (flags.probe) options.probe = session::ProbePolicy::kAlways;
  KVG_ASSIGN(options.generate, MakeGenerateOptions(shell, flags.generate));
  return Status::Ok();
}

Json ReportJson(const app::AskReport& report) {
  Json json;
  json["answer"] = report.generation.text;
  json["tier"] = report.tier;
  json["tokens_reused"] = report.tokens_reused;
  json["tokens_computed"] = report.tokens_computed;
  json["restore_ms"] = report.restore_ms();
  json["first_token_ms"] = report.first_token_ms;
  json["tokens_generated"] = report.generation.tokens.size();
  json["artifacts"] = Json::array();
  for (const auto& entry : report.artifacts) json["artifacts"].push_back(entry.id);
  json["tier_reason"] = report.tier_reason.empty() ? Json(nullptr) : Json(report.tier_reason);
  json["gate"] = GateJson(report);
  json["fell_back"] = report.fell_back;
  json["stored"] = report.stored_id.empty() ? Json(nullptr) : Json(report.stored_id);
  json["fallback"] = report.fallback.empty() ? Json(nullptr) : Json(report.fallback);
  json["finish_reason"] = report.generation.finish_reason;
  json["generation"] = report.exact_schedule ? "exact" : "fast";
  json["prompt_tokens"] = report.prompt_tokens;
  json["n_ctx"] = report.n_ctx;
  json["verify_ms"] = report.verify_ms;
  json["load_ms"] = report.load_ms;
  json["tail_ms"] = report.tail_ms;
  json["probe_ms"] = report.probe_ms;
  json["probe_identical"] = report.probed ? Json(report.probe_identical) : Json(nullptr);
  json["generate_ms"] = report.generation.total_ms;
  json["total_ms"] = report.total_ms;
  json["steps"] = report.generation.steps;
  json["drafted"] = report.generation.drafted;
  json["accepted"] = report.generation.accepted;
  return json;
}

std::string Summary(const app::AskReport& report) {
  std::string line = FormatCount(report.tokens_reused) + " tokens reused";
  for (size_t i = 0; i < report.artifacts.size(); ++i) {
    line += (i == 0 ? " from " : ", ") + ShortId(report.artifacts[i].id);
  }
  if (!report.artifacts.empty()) line += " in " + FormatMs(report.restore_ms());
  line += ", " + FormatCount(report.tokens_computed) + " computed, first token after " +
          FormatMs(report.first_token_ms) + ", tier " + report.tier;
  if (!report.tier_reason.empty()) line += " (" + report.tier_reason + ")";
  for (const auto& [artifact, v] : report.gate) {
    if (!v.judged) continue;
    char text[64];
    std::snprintf(text, sizeof text, " %+.3f of %.3f nats", v.delta, v.threshold);
    line += ", gate " + ShortId(artifact) + text + (v.passed ? "" : ": not passed");
  }
  return line;
}

Status RunAskVerb(Shell& shell, AskFlags& flags) {
  KVG_RETURN(FillOptions(shell, flags));
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  // Text appears as it is made; a script that reads a pipe gets the same bytes at the end.
  flags.options.generate.on_text = [&shell](std::string_view text) {
    shell.console.Print(text);
    return !Interrupted();
  };
  auto report = app::RunAsk(*runtime, flags.options);
  if (!report.ok()) return report.status().Annotate("ask");
  shell.console.Print("\n");
  if (Interrupted()) return Status(Code::kCancelled, "ask: interrupted");
  if (shell.console.json) {
    shell.console.PrintJson(ReportJson(*report));
  } else {
    if (report->generation.finish_reason == "length" &&
        report->max_tokens < flags.options.generate.max_tokens) {
      shell.console.Note("the answer ends where the context of " + std::to_string(report->n_ctx) +
                         " tokens is full; -c gives more");
    }
    if (!report->fallback.empty()) {
      shell.console.Note("computed instead of grafted: " + report->fallback);
    }
    shell.console.Note(Summary(*report));
  }
  return Status::Ok();
}

Status RunEmbedVerb(Shell& shell, const std::string& text) {
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  KVG_ASSIGN(engine::Model * model, runtime->OpenModel());
  auto values = model->Embed(text);
  if (!values.ok()) return values.status().Annotate("embed");
  if (shell.console.json) {
    Json json;
    json["embedding"] = *values;
    json["dimensions"] = values->size();
    shell.console.PrintJson(json);
    return Status::Ok();
  }
  std::string line;
  for (float value : *values) line += (line.empty() ? "" : " ") + CanonicalFloat(value);
  shell.console.PrintLine(line);
  return Status::Ok();
}

}  // namespace

void AddAskVerbs(Shell& shell) {
  CLI::App* ask = AddVerb(shell, "ask", "graft an artifact, then answer a question");
  auto flags = std::make_shared<AskFlags>();
  ask->add_option("QUESTION", flags->words, "the question")->type_name("TEXT");
  ask->add_option("--graft", flags->options.grafts, "artifact: name, id, or 6 digits of it or more")
      ->type_name("REF")
      ->allow_extra_args(false);
  ask->add_option("--file", flags->file, "without --graft: document computed now")
      ->type_name("FILE");
  ask->add_option("--text", flags->text, "without --graft: the document itself")->type_name("TEXT");
  ask->add_option("--system", flags->options.source.system, "without --graft: system text")
      ->type_name("TEXT");
  ask->add_flag("--raw", flags->options.source.raw, "without --graft: no chat template");
  ask->add_flag("--probe", flags->probe, "prove the restored state even if done in this process");
  ask->add_flag("--no-probe", flags->no_probe, "restore without the proof of the logits");
  ask->add_flag("--or-compute", flags->options.or_compute,
                "a state that cannot be read is computed from the artifact's tokens");
  ask->add_option("--link", flags->options.link_tokens,
                  "first tokens of further artifacts that are computed in their place (" +
                      std::to_string(session::kDefaultLinkTokens) + ")")
      ->type_name("N");
  ask->add_option("--gate", flags->gate,
                  "several artifacts: compute them all when one drifts (on), or never ask (off)")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off");
  ask->add_flag("--exact", flags->options.exact,
                "several artifacts: compute what their sequence lacks, and store it");
  AddGenerateFlags(ask, &flags->generate);
  AddModelFlags(ask, shell);
  AddStoreFlags(ask, shell);
  ask->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunAskVerb(shell, *flags); }; });

  CLI::App* embed = AddVerb(shell, "embed", "embedding of a text, for models with pooling");
  auto text = std::make_shared<std::string>();
  embed->add_option("TEXT", *text, "the text")->required();
  AddModelFlags(embed, shell);
  embed->callback(
      [&shell, text] { shell.action = [&shell, text] { return RunEmbedVerb(shell, *text); }; });
}

}  // namespace kvgraft::cli
