#include "kvgraft/cli/shell.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "kvgraft/app/version.h"

namespace kvgraft::cli {
namespace {

// Texts to numbers, with the flag's name in the message: the environment gives texts as well.
template <typename T>
Status Parse(const std::string& text, const char* flag, T* out) {
  if (text.empty()) return Status::Ok();
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, *out);
  if (error == std::errc() && at == end) return Status::Ok();
  return Status(Code::kInvalidArgument,
                std::string(flag) + ": expected a number, got '" + text + "'");
}

// The parser's message with what to do, in one line.
Status UsageError(const CLI::App& root, const CLI::ParseError& error) {
  std::string verb;
  for (const CLI::App* sub = &root; !sub->get_subcommands().empty();) {
    sub = sub->get_subcommands().front();
    verb += " " + sub->get_name();
  }
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  while (!message.empty() && message.back() == ' ') message.pop_back();
  if (verb.empty()) {
    message = root.remaining_size() > 0 ? "'" + root.remaining().front() + "' is not a verb"
                                        : std::string("no verb given");
  }
  return Status(Code::kInvalidArgument, message + "; see 'kvgraft" + verb + " --help'");
}

int Run(Shell& shell) {
  InstallInterruptHandler();
  const Status status = shell.action();
  const bool written = shell.console.Finish();
  if (!status.ok()) {
    shell.console.PrintError(status);
    return ExitCode(status.code());
  }
  if (!written) {
    shell.console.PrintError(Status(Code::kIo, "standard output could not be written"));
    return ExitCode(Code::kIo);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<app::Runtime>> Shell::MakeRuntime() {
  KVG_ASSIGN(app::Config config, app::MakeConfig(flags, environment));
  if (verbose) app::ShowEngineLog(console.Hooks());
  return std::make_unique<app::Runtime>(std::move(config), console.Hooks());
}

CLI::App* AddVerb(Shell& shell, const std::string& name, const std::string& description) {
  CLI::App* verb = shell.root->add_subcommand(name, description);
  verb->add_flag("--json", shell.console.json, "print one JSON object instead of text");
  verb->add_flag("-q,--quiet", shell.console.quiet, "no progress and no remarks");
  verb->add_flag("-v,--verbose", shell.verbose, "show the engine's log");
  return verb;
}

void AddStoreFlags(CLI::App* verb, Shell& shell) {
  app::Flags& flags = shell.flags;
  verb->add_option("--store", flags.store, "folder of the artifacts (KVGRAFT_STORE)")
      ->type_name("DIR");
  verb->add_option("--budget", flags.budget, "bytes that all artifacts may take (KVGRAFT_BUDGET)")
      ->type_name("SIZE");
  verb->add_option("--free-floor", flags.free_floor,
                   "bytes that must stay free on the disk (KVGRAFT_FREE_FLOOR)")
      ->type_name("SIZE");
}

void AddModelFlags(CLI::App* verb, Shell& shell) {
  app::Flags& flags = shell.flags;
  const auto option = [&](const char* names, std::optional<std::string>& out, const char* type,
                          const char* text) {
    verb->add_option(names, out, text)->type_name(type);
  };
  option("-m,--model", flags.model, "MODEL", "short name or GGUF file (LLAMA_ARG_MODEL)");
  option("--models-dir", flags.models_dir, "DIR", "folder of the models (KVGRAFT_MODELS)");
  option("-c,--ctx-size", flags.ctx_size, "N", "context in tokens; default: what the task needs");
  option("-t,--threads", flags.threads, "N", "threads; default: the usable cores");
  option("--ubatch-size", flags.ubatch_size, "N", "[-ub] rows per physical batch (512)");
  option("--flash-attn", flags.flash_attn, "on|off|auto",
         "[-fa] flash attention; auto: as the self-test finds");
  option("--cache-type-k", flags.cache_type_k, "TYPE", "[-ctk] type of the keys (f16)");
  option("--cache-type-v", flags.cache_type_v, "TYPE", "[-ctv] type of the values (f16)");
  option("--n-gpu-layers", flags.n_gpu_layers, "N", "[-ngl] layers on the GPU; -1: all");
  option("--rope-freq-base", flags.rope_freq_base, "X", "RoPE base; 0: the model's");
  option("--rope-freq-scale", flags.rope_freq_scale, "X", "RoPE scale; 0: the model's");
  option("--tenant", flags.tenant, "NAME",
         "states are never shared across tenants (KVGRAFT_TENANT)");
  verb->add_option("--lora", flags.lora, "LoRA adapter; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  verb->add_option("--lora-scaled", flags.lora_scaled, "LoRA adapter with its scale")
      ->type_name("FILE SCALE")
      ->allow_extra_args(false);
  verb->add_flag_callback(
      "--swa-full", [&shell] { shell.flags.swa_full = "on"; },
      "full-size cache of sliding-window layers (the default)");
  verb->add_flag_callback(
      "--no-swa-full", [&shell] { shell.flags.swa_full = "off"; },
      "small cache of sliding-window layers: states are not exact");
}

void AddGenerateFlags(CLI::App* verb, GenerateFlags* flags) {
  verb->add_option("-n,--predict", flags->n, "tokens to generate at most (256)")->type_name("N");
  verb->add_option("--temp", flags->temp, "temperature; 0: greedy (the default)")->type_name("X");
  verb->add_option("--top-k", flags->top_k, "choose among the K most likely (40; 0: all)")
      ->type_name("K");
  verb->add_option("--top-p", flags->top_p, "choose within this probability (0.95)")
      ->type_name("P");
  verb->add_option("--min-p", flags->min_p,
                   "leave out what is less likely than P of the best (0.05)")
      ->type_name("P");
  verb->add_option("-s,--seed", flags->seed, "seed of the choices (0)")->type_name("N");
  verb->add_option("--stop", flags->options.stop, "end before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_flag("--ignore-eos", flags->options.ignore_eos, "go on after the end token");
  verb->add_flag("--fast", flags->fast, "generate in single rows: faster alone, not exact");
  verb->add_flag("--no-drafts", flags->no_drafts, "no draft tokens in spare rows");
}

Result<session::GenerateOptions> MakeGenerateOptions(Shell& shell, const GenerateFlags& flags) {
  session::GenerateOptions options = flags.options;
  std::string n = flags.n;
  if (n.empty()) n = shell.environment("LLAMA_ARG_N_PREDICT").value_or("");
  int64_t max_tokens = options.max_tokens;
  KVG_RETURN(Parse(n, "-n", &max_tokens));
  if (max_tokens == -1) max_tokens = INT32_MAX;  // llama.cpp's word for "no limit"
  if (max_tokens < 1 || max_tokens > INT32_MAX) {
    return Status(Code::kInvalidArgument, "-n: expected 1 or more, or -1, got '" + n + "'");
  }
  options.max_tokens = static_cast<uint32_t>(max_tokens);
  KVG_RETURN(Parse(flags.temp, "--temp", &options.sampling.temperature));
  KVG_RETURN(Parse(flags.top_k, "--top-k", &options.sampling.top_k));
  KVG_RETURN(Parse(flags.top_p, "--top-p", &options.sampling.top_p));
  KVG_RETURN(Parse(flags.min_p, "--min-p", &options.sampling.min_p));
  KVG_RETURN(Parse(flags.seed, "-s", &options.sampling.seed));
  if (options.sampling.temperature == 0 &&
      !(flags.top_k.empty() && flags.top_p.empty() && flags.min_p.empty())) {
    shell.console.Note("--top-k, --top-p and --min-p have no effect at temperature 0");
  }
  if (flags.fast) options.schedule = engine::Schedule::kFast;
  options.drafts = !flags.no_drafts && !flags.fast;
  KVG_RETURN(session::CheckSampling(options.sampling));
  return options;
}

std::vector<std::string> ExpandShortNames(const std::vector<std::string>& args) {
  static const std::map<std::string, std::string> kLong = {
      {"-ub", "--ubatch-size"},   {"-fa", "--flash-attn"},    {"-ctk", "--cache-type-k"},
      {"-ctv", "--cache-type-v"}, {"-ngl", "--n-gpu-layers"},
  };
  std::vector<std::string> out;
  bool options = true;
  for (const std::string& arg : args) {
    if (arg == "--") options = false;
    const size_t equals = arg.find('=');
    const auto found = kLong.find(arg.substr(0, equals));
    if (!options || found == kLong.end()) {
      out.push_back(arg);
    } else {
      out.push_back(found->second + (equals == arg.npos ? "" : arg.substr(equals)));
    }
  }
  return out;
}

void BuildVerbs(Shell& shell) {
  AddCaptureVerbs(shell);
  AddAskVerbs(shell);
  AddChatVerbs(shell);
  AddStoreVerbs(shell);
  AddShowVerbs(shell);
  AddVerifyVerbs(shell);
  AddTransferVerbs(shell);
  AddModelsVerbs(shell);
  AddProveVerbs(shell);
  AddEvalVerbs(shell);
  AddDoctorVerbs(shell);
  AddCompletionVerbs(shell);
}

int RunProgram(const std::vector<std::string>& args) {
  CLI::App root(
      "kvgraft keeps the KV state of language models as data: captured once, proved, reused",
      "kvgraft");
  root.require_subcommand(1);
  root.set_version_flag("--version", std::string("kvgraft ") + app::kVersion);
  root.footer("Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused as incompatible or damaged.");
  Shell shell;
  shell.root = &root;
  shell.environment = app::ProcessEnvironment();
  BuildVerbs(shell);
  std::vector<std::string> reversed = ExpandShortNames(args);
  std::reverse(reversed.begin(), reversed.end());
  try {
    root.parse(std::move(reversed));
  } catch (const CLI::Success& success) {  // --help, --version
    return root.exit(success);
  } catch (const CLI::ParseError& error) {
    shell.console.PrintError(UsageError(root, error));
    return ExitCode(Code::kInvalidArgument);
  } catch (const std::exception& error) {
    shell.console.PrintError(Status(Code::kInternal, error.what()));
    return ExitCode(Code::kInternal);
  }
  return Run(shell);
}

}  // namespace kvgraft::cli
