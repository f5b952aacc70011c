// Opens what a command needs, when it needs it: the store, the model, the exact profile of this
// machine, a context. Knows all concrete types; the commands see interfaces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvgraft/app/config.h"
#include "kvgraft/app/hooks.h"
#include "kvgraft/core/status.h"
#include "kvgraft/engine/engine.h"
#include "kvgraft/engine/toy_engine.h"
#include "kvgraft/session/capture.h"
#include "kvgraft/session/doctor.h"
#include "kvgraft/session/drift.h"
#include "kvgraft/store/store.h"

namespace kvgraft::app {

// "toy", "toy:SEED" or "toy:SEED,window=64,quantum=8,build=x,fail_load,fail_decode=N,no_template,
// pooled": the built-in test model (HACKING.md). kInvalidArgument for anything else.
Result<engine::ToyOptions> ParseToy(const std::string& model);

struct EngineInfo {
  std::string version, ggml, build, system_info, cpu_features;
};
EngineInfo GetEngineInfo();

// Sends the engine's own log to standard error through hooks.note.
void ShowEngineLog(const Hooks& hooks);

// One command's objects; not for several threads. Pointers stay valid as long as the Runtime.
class Runtime {
 public:
  Runtime(Config config, Hooks hooks) : config_(std::move(config)), hooks_(std::move(hooks)) {}

  const Config& config() const { return config_; }
  const Hooks& hooks() const { return hooks_; }

  // evict false: what is over the limits stays until Gc is called.
  Result<store::Store*> OpenStore(bool evict = true);
  Result<engine::Model*> OpenModel();

  // The attention mode and row quantum that are exact here: kept, or found by the self-test now.
  Result<session::ExactProfile> Profile();
  // Runs the self-test over every configuration and keeps the result for Profile().
  Result<session::ExactProfile> RunSelfTest();
  // Of the contexts that the profile gives; makes one. A context that is there says it for nothing.
  Result<StateIdentity> Identity();
  // What the drift gate's calibration has found for contexts of this identity: kept, or found now.
  Result<session::DriftRecord> Drift(const StateIdentity& identity, uint32_t link_tokens);
  // The kept ones only.
  std::vector<session::DriftRecord> KeptDrift(const StateIdentity& identity) const;
  session::DoctorOptions SelfTestOptions() const;
  std::string ProfileDir() const;
  session::ProbeLedger* ledger() { return &ledger_; }

  // The profile's options for a context of n_ctx tokens. Where no configuration is exact: attention
  // off unless it was asked for, and 8 rows.
  Result<engine::ContextOptions> ContextFor(uint32_t n_ctx);

  // A context that holds `needed` tokens: -c if given, which must suffice (kExhausted with both
  // numbers), else `needed` rounded up, within what the model was trained with. `least` of them are
  // indispensable (less than needed: the rest is room to generate).
  Result<std::unique_ptr<engine::Context>> NewContext(uint64_t needed, uint64_t least);

 private:
  Result<session::ExactProfile> SelfTest(bool exhaustive);

  Config config_;
  Hooks hooks_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::Model> model_;
  std::optional<session::ExactProfile> profile_;
  session::ProbeLedger ledger_;
};

}  // namespace kvgraft::app
