// From flags and environment to one checked configuration. A flag wins over its environment twin;
// names and meanings are llama.cpp's where it has them (LLAMA_ARG_MODEL, LLAMA_ARG_CTX_SIZE ...).
// Nothing below app reads the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvgraft/core/status.h"
#include "kvgraft/engine/engine.h"

namespace kvgraft::app {

// Value of a variable; nullopt when unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();

// Texts as given on the command line; nullopt: not given.
struct Flags {
  std::optional<std::string> store, budget, free_floor, tenant, models_dir;
  std::optional<std::string> model, ctx_size, threads, ubatch_size, flash_attn;
  std::optional<std::string> cache_type_k, cache_type_v, rope_freq_base, rope_freq_scale;
  std::optional<std::string> n_gpu_layers, swa_full;
  std::vector<std::string> lora;
  std::vector<std::pair<std::string, std::string>> lora_scaled;  // file, scale
};

struct Adapter {
  std::string path;
  float scale = 1.0f;
};

struct Config {
  std::string store_root;     // --store, KVGRAFT_STORE, $XDG_DATA_HOME/kvgraft/store
  std::string cache_dir;      // $XDG_CACHE_HOME/kvgraft: self-test profiles, hashes of model files
  std::string models_dir;     // --models-dir, KVGRAFT_MODELS, $XDG_DATA_HOME/kvgraft/models
  std::string program_dir;    // folder of the running program: where models.py and models.lock are
  uint64_t budget_bytes = 0;  // 0: no limit
  uint64_t free_floor_bytes = 1ull << 30;
  std::string tenant;

  std::string model;       // -m as given: short name, path, or toy[:SEED]; empty: none
  uint32_t n_ctx = 0;      // 0: as the task needs
  uint32_t n_threads = 1;  // resolved
  uint32_t n_ubatch = 512;
  engine::Attention attention = engine::Attention::kAuto;
  std::string type_k = "f16", type_v = "f16";
  float rope_freq_base = 0, rope_freq_scale = 0;
  bool swa_full = true;
  int32_t n_gpu_layers = -1;
  std::vector<Adapter> adapters;
};

// kInvalidArgument names the flag or variable, what was expected and what was given.
Result<Config> MakeConfig(const Flags& flags, const Environment& environment);

// "20GiB", "500MB", "1.5G", "4096"; K, M, G, T and KiB ... are powers of 1024, KB ... of 1000.
Result<uint64_t> ParseBytes(std::string_view text);

// Physical cores that this process may use: its affinity, hyper-threads counted once, the limit of
// its control group; at least 1.
uint32_t UsableCores();

// Folder of the running program, "" when the system does not say.
std::string ProgramDir();
std::string ProgramPath();

}  // namespace kvgraft::app
