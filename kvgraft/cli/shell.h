// One run of the program: what was parsed, and what to do. Each verb_*.cc registers its verbs with
// their flags; parsing leaves one action, which returns a Status and prints through the console.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "kvgraft/app/config.h"
#include "kvgraft/app/runtime.h"
#include "kvgraft/cli/console.h"
#include "kvgraft/core/status.h"
#include "kvgraft/session/generate.h"
#include "kvgraft/store/store.h"

namespace kvgraft::cli {

struct Shell {
  Console console;
  app::Flags flags;
  app::Environment environment;
  bool verbose = false;            // -v: the engine's log
  std::function<Status()> action;  // of the verb that was given
  CLI::App* root = nullptr;

  // Configuration and objects; call in an action only.
  Result<std::unique_ptr<app::Runtime>> MakeRuntime();
};

// A verb with --json, -q and -v.
CLI::App* AddVerb(Shell& shell, const std::string& name, const std::string& description);
// --store, --budget, --free-floor.
void AddStoreFlags(CLI::App* verb, Shell& shell);
// -m and everything that a model and its context take. `required`: an error says so without -m.
void AddModelFlags(CLI::App* verb, Shell& shell);

// -n, --temp, --top-k, --top-p, --min-p, -s, --stop, --fast, --no-drafts, --ignore-eos.
struct GenerateFlags {
  session::GenerateOptions options;
  bool fast = false, no_drafts = false;
  std::string n, temp, top_k, top_p, min_p, seed;  // texts; empty: not given
};
void AddGenerateFlags(CLI::App* verb, GenerateFlags* flags);
// Checks them, with the environment's twins. Notes flags that have no effect.
Result<session::GenerateOptions> MakeGenerateOptions(Shell& shell, const GenerateFlags& flags);

// Registration, one function a verb group.
void AddCaptureVerbs(Shell& shell);
void AddAskVerbs(Shell& shell);
void AddChatVerbs(Shell& shell);
void AddStoreVerbs(Shell& shell);
void AddTransferVerbs(Shell& shell);
void AddVerifyVerbs(Shell& shell);
void AddShowVerbs(Shell& shell);
void AddModelsVerbs(Shell& shell);
void AddProveVerbs(Shell& shell);
void AddEvalVerbs(Shell& shell);
void AddDoctorVerbs(Shell& shell);
void AddCompletionVerbs(Shell& shell);

// All verbs, on shell.root.
void BuildVerbs(Shell& shell);
// llama.cpp's short names of several letters ("-ctk") as the long ones that the parser knows.
std::vector<std::string> ExpandShortNames(const std::vector<std::string>& args);
// Parses and runs: the whole program. `args` without the program's name.
int RunProgram(const std::vector<std::string>& args);

Json EntryJson(const store::Entry& entry);

}  // namespace kvgraft::cli
