// kvgraft prove, and the hidden prove-restore that its new-process arm runs.
#include <nlohmann/json.hpp>

#include "kvgraft/app/document.h"
#include "kvgraft/app/proof_file.h"
#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct ProveFlags {
  app::ProveOptions options;
  bool same_process = false;
};

// The flags of the model again, as given, for the child; the environment it inherits.
std::vector<std::string> ModelArgs(const app::Flags& flags) {
  std::vector<std::string> args;
  const auto add = [&](const char* name, const std::optional<std::string>& value) {
    if (value) args.insert(args.end(), {name, *value});
  };
  add("-m", flags.model);
  add("--models-dir", flags.models_dir);
  add("-t", flags.threads);
  add("--n-gpu-layers", flags.n_gpu_layers);
  add("--tenant", flags.tenant);
  for (const std::string& path : flags.lora) args.insert(args.end(), {"--lora", path});
  for (const auto& [path, scale] : flags.lora_scaled) {
    args.insert(args.end(), {"--lora-scaled", path, scale});
  }
  return args;
}

Status RunVerb(Shell& shell, ProveFlags& flags) {
  flags.options.other_process = !flags.same_process;
  flags.options.model_args = ModelArgs(shell.flags);
  flags.options.model = shell.flags.model.value_or("");
  if (flags.options.samples == 0) {
    return Status(Code::kInvalidArgument, "prove: --samples must be 1 or more");
  }
  if (flags.options.resume && flags.options.out.empty()) {
    return Status(Code::kInvalidArgument, "prove: --resume needs the --out that it goes on with");
  }
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  bool stopped = false;
  auto outcome = app::RunProve(
      *runtime, flags.options, [&](const eval::ProveSample& sample, size_t done, size_t total) {
        if (!sample.identical()) {
          shell.console.Note("sample " + std::to_string(sample.index) + " differs: " + sample.arm +
                             ", " + std::to_string(sample.n_tokens) + " tokens");
        }
        stopped = !shell.console.ShowProgress("prove", done, total);
        return !stopped;
      });
  if (!outcome.ok()) return outcome.status().Annotate("prove");
  if (stopped) {
    return Status(Code::kCancelled,
                  flags.options.out.empty()
                      ? "prove: interrupted"
                      : "prove: interrupted; --resume goes on with " + flags.options.out);
  }
  const eval::ProveReport& report = outcome->report;
  if (shell.console.json) {
    shell.console.PrintJson(Json::parse(app::ProofSummary(*outcome)));
  } else {
    char line[256];
    std::snprintf(line, sizeof(line),
                  "%u of %zu identical in every bit; KL at most %g, logits at most %g apart\n"
                  "the engine's ordinary batching: logits up to %g apart",
                  report.n_identical(), report.samples.size(), report.kl_max(),
                  report.max_abs_logit_diff(), report.ordinary_max_abs_logit_diff());
    shell.console.PrintLine(line);
  }
  if (const size_t n = report.samples.size() - report.n_identical(); n > 0) {
    return Status(Code::kInternal, "prove: " + std::to_string(n) + " of " +
                                       std::to_string(report.samples.size()) + " samples differ");
  }
  return Status::Ok();
}

Status RunRestoreVerb(Shell& shell) {
  KVG_ASSIGN(std::string request, app::ReadDocument("-"));
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  KVG_ASSIGN(std::string answer, app::RunProveRestore(*runtime, request));
  shell.console.PrintLine(answer);
  return Status::Ok();
}

}  // namespace

void AddProveVerbs(Shell& shell) {
  CLI::App* verb =
      AddVerb(shell, "prove", "show that restored states equal computed ones, bit by bit");
  auto flags = std::make_shared<ProveFlags>();
  verb->add_option("--samples", flags->options.samples, "samples (100)")->type_name("N");
  verb->add_option("-s,--seed", flags->options.seed, "seed of the samples (1)")->type_name("N");
  verb->add_option("--max-tokens", flags->options.max_tokens, "longest sample in tokens (2048)")
      ->type_name("N");
  verb->add_option("--texts", flags->options.texts_dir, "folder with further natural text")
      ->type_name("DIR");
  verb->add_option("--out", flags->options.out, "write all figures of every sample here, as JSON")
      ->type_name("FILE");
  verb->add_flag("--resume", flags->options.resume, "go on with the samples that --out has");
  verb->add_flag("--same-process", flags->same_process, "leave out restores in another process");
  AddModelFlags(verb, shell);
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });

  CLI::App* child = AddVerb(shell, "prove-restore", "");
  child->group("");  // hidden
  AddModelFlags(child, shell);
  child->callback([&shell] { shell.action = [&shell] { return RunRestoreVerb(shell); }; });
}

}  // namespace kvgraft::cli
