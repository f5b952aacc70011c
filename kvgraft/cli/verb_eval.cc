// kvgraft eval
#include <nlohmann/json.hpp>

#include "kvgraft/app/eval_offset.h"
#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct EvalFlags {
  std::string kind;
  app::EvalOffsetOptions offset;
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

Status RunVerb(Shell& shell, EvalFlags& flags) {
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
  verb->add_option("EVALUATION", flags->kind, "offset: grafts at another position")
      ->required()
      ->check(CLI::IsMember({"offset"}));
  verb->add_flag("--quick", flags->offset.quick, "few texts and offsets");
  verb->add_option("--out", flags->offset.out, "write all figures here, as JSON")
      ->type_name("FILE");
  verb->add_option("--items", flags->offset.items, "write a line of JSON for each item here")
      ->type_name("FILE");
  verb->add_option("--offsets", flags->offset.offsets, "positions to move by")
      ->delimiter(',')
      ->type_name("N,N");
  verb->add_option("--samples", flags->offset.n_texts, "texts (8)")->type_name("N");
  verb->add_option("-s,--seed", flags->offset.seed, "seed of the texts (1)")->type_name("N");
  verb->add_option("--texts", flags->offset.texts_dir, "folder with further natural text")
      ->type_name("DIR");
  AddModelFlags(verb, shell);
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });
}

}  // namespace kvgraft::cli
