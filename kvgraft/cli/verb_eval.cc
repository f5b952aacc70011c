// kvgraft eval
#include <nlohmann/json.hpp>

#include "kvgraft/app/eval_compose.h"
#include "kvgraft/app/eval_offset.h"
#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct EvalFlags {
  std::string kind;
  app::EvalOffsetOptions offset;  // also what both have in common
  app::EvalComposeOptions compose;
  std::string gate = "on";
};

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5f", value);
  return text;
}

std::string WithError(const eval::OffsetSummary::Arm& arm) {
  return Figure(arm.kl) + " (" + Figure(arm.kl_error) + ")";
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void PrintOffset(Shell& shell, const app::EvalOffsetOutcome& outcome) {
  std::vector<std::vector<std::string>> rows = {{"OFFSET", "KL MOVED", "KL MODEL ITSELF",
                                                 "KL ENGINE'S SHIFT", "TOP-1 MOVED",
                                                 "TOP-1 ITSELF"}};
  for (const eval::OffsetSummary& s : outcome.offsets) {
    rows.push_back({std::to_string(s.offset), WithError(s.moved), WithError(s.fresh),
                    s.has_shift ? WithError(s.shift) : "-", Percent(s.moved.top1),
                    Percent(s.fresh.top1)});
  }
  shell.console.Print(FormatTable(rows, "rrrrrr"));
  shell.console.PrintLine(
      std::string("mean KL (its standard error) against the text computed at the offset; a moved "
                  "graft is ") +
      (outcome.holds ? "as near as the model's own drift and the engine's shift"
                     : "FARTHER OFF than the model's own drift or the engine's shift"));
}

std::string PValue(double p) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", p);
  return text;
}

void PrintCompose(Shell& shell, const app::EvalComposeOutcome& outcome) {
  std::vector<std::vector<std::string>> rows = {{"ARM", "QUESTIONS", "KL", "TOP-1", "RIGHT",
                                                 "ONLY FULL", "ONLY THIS", "P", "MS", "FALLS BACK",
                                                 "KL ACCEPTED", "RIGHT WITH GATE"}};
  for (const eval::ComposeSummary& s : outcome.summaries) {
    const std::string of = " of " + std::to_string(s.items);
    const bool gated = s.gated > 0;
    rows.push_back({s.arm, s.kind, Figure(s.kl.mean) + " (" + Figure(s.kl.error) + ")",
                    Percent(s.top1), std::to_string(s.correct) + of, std::to_string(s.only_full),
                    std::to_string(s.only_this), PValue(s.mcnemar_p), FormatMs(s.ms.mean),
                    gated ? std::to_string(s.fell_back) + of : "-",
                    gated && s.fell_back < s.gated ? Figure(s.kl_accepted.mean) : "-",
                    gated ? std::to_string(s.correct_gated) + of : "-"});
  }
  shell.console.Print(FormatTable(rows, "llrrrrrrrrrr"));
  for (const session::DriftRecord& r : outcome.gates) {
    if (r.usable) continue;
    shell.console.PrintLine("link " + std::to_string(r.link_tokens) +
                            ": ask composes nothing: " + r.reason);
  }
}

Status RunCompose(Shell& shell, EvalFlags& flags) {
  app::EvalComposeOptions& options = flags.compose;
  options.quick = flags.offset.quick;
  options.out = flags.offset.out;
  options.items = flags.offset.items;
  options.samples = flags.offset.n_texts;
  options.seed = flags.offset.seed;
  options.gate = flags.gate == "on";
  options.model = shell.flags.model.value_or("");
  if (options.resume && options.items.empty()) {
    return Status(Code::kInvalidArgument,
                  "eval compose: --resume goes on with the file of --items");
  }
  if (!flags.offset.offsets.empty() || !flags.offset.texts_dir.empty()) {
    return Status(Code::kInvalidArgument, "eval compose: --offsets and --texts have no effect");
  }
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  auto outcome = app::RunEvalCompose(*runtime, options);
  if (!outcome.ok()) return outcome.status().Annotate("eval compose");
  if (shell.console.json) {
    shell.console.PrintJson(Json::parse(app::EvalComposeJson(*outcome)));
  } else {
    PrintCompose(shell, *outcome);
  }
  return Status::Ok();
}

Status RunVerb(Shell& shell, EvalFlags& flags) {
  if (flags.kind == "compose") return RunCompose(shell, flags);
  if (!flags.compose.data.empty() || !flags.compose.link_tokens.empty() || flags.compose.resume) {
    return Status(Code::kInvalidArgument,
                  "eval offset: --data, --links and --resume have no effect");
  }
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  flags.offset.model = shell.flags.model.value_or("");
  auto outcome = app::RunEvalOffset(*runtime, flags.offset);
  if (!outcome.ok()) return outcome.status().Annotate("eval offset");
  if (shell.console.json) {
    shell.console.PrintJson(Json::parse(app::EvalOffsetJson(*outcome)));
  } else {
    PrintOffset(shell, *outcome);
  }
  return Status::Ok();
}

}  // namespace

void AddEvalVerbs(Shell& shell) {
  CLI::App* verb = AddVerb(shell, "eval", "measure how good what is not exact is");
  auto flags = std::make_shared<EvalFlags>();
  verb->add_option("EVALUATION", flags->kind,
                   "offset: grafts at another position; compose: several artifacts")
      ->required()
      ->check(CLI::IsMember({"offset", "compose"}));
  verb->add_flag("--quick", flags->offset.quick, "few texts, offsets, questions");
  verb->add_option("--out", flags->offset.out, "write all figures here, as JSON")
      ->type_name("FILE");
  verb->add_option("--items", flags->offset.items, "write a line of JSON for each item here")
      ->type_name("FILE");
  verb->add_option("--offsets", flags->offset.offsets, "positions to move by")
      ->delimiter(',')
      ->type_name("N,N");
  verb->add_option("--samples", flags->offset.n_texts,
                   "offset: texts (8); compose: questions (all)")
      ->type_name("N");
  verb->add_option("-s,--seed", flags->offset.seed, "seed of the texts (1)")->type_name("N");
  verb->add_option("--texts", flags->offset.texts_dir, "folder with further natural text")
      ->type_name("DIR");
  verb->add_option("--data", flags->compose.data, "compose: questions, a line of JSON each")
      ->type_name("FILE");
  verb->add_option("--links", flags->compose.link_tokens, "compose: numbers of link tokens")
      ->delimiter(',')
      ->type_name("N,N");
  verb->add_flag("--resume", flags->compose.resume, "compose: go on with the file of --items");
  verb->add_option("--gate", flags->gate, "compose: off leaves out the gate and its calibration")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off");
  AddModelFlags(verb, shell);
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });
}

}  // namespace kvgraft::cli
