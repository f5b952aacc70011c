#include "kvgraft/app/config.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "kvgraft/core/file.h"

namespace kvgraft::app {
namespace {

// A value with the name of where it came from, for messages.
struct Given {
  std::string text, source;
};

std::optional<Given> Pick(const std::optional<std::string>& flag, const char* flag_name,
                          const Environment& environment, const char* variable) {
  if (flag) return Given{*flag, flag_name};
  if (variable == nullptr) return std::nullopt;
  if (auto value = environment(variable)) return Given{*value, variable};
  return std::nullopt;
}

Status Bad(const Given& given, const std::string& expected) {
  return Status(Code::kInvalidArgument,
                given.source + ": expected " + expected + ", got '" + given.text + "'");
}

Result<int64_t> ParseInt(const Given& given, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = given.text.data() + given.text.size();
  auto [at, error] = std::from_chars(given.text.data(), end, value);
  if (error != std::errc() || at != end || given.text.empty() || value < low || value > high) {
    return Bad(given, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

Result<float> ParsePositive(const Given& given) {
  float value = 0;
  const char* end = given.text.data() + given.text.size();
  auto [at, error] = std::from_chars(given.text.data(), end, value);
  if (error != std::errc() || at != end || !std::isfinite(value) || value < 0) {
    return Bad(given, "a number that is not negative");
  }
  return value;
}

Result<bool> ParseSwitch(const Given& given) {
  if (given.text == "on" || given.text == "1" || given.text == "true") return true;
  if (given.text == "off" || given.text == "0" || given.text == "false") return false;
  return Bad(given, "on or off");
}

Status SetPaths(const Flags& flags, const Environment& environment, Config* config) {
  const std::string home = environment("HOME").value_or("");
  // The XDG rule: a relative path in these variables is to be ignored.
  auto base = [&](const char* variable, const char* fallback) -> std::string {
    auto value = environment(variable);
    if (value && value->front() == '/') return JoinPath(*value, "kvgraft");
    return home.empty() ? "" : JoinPath(JoinPath(home, fallback), "kvgraft");
  };
  const std::string data = base("XDG_DATA_HOME", ".local/share");
  config->cache_dir = base("XDG_CACHE_HOME", ".cache");
  auto choose = [&](const std::optional<std::string>& flag, const char* flag_name,
                    const char* variable, const char* leaf, std::string* out) {
    auto given = Pick(flag, flag_name, environment, variable);
    if (given && given->text.empty()) return Bad(*given, "a folder");
    if (!given && data.empty()) {
      return Status(Code::kInvalidArgument, std::string("no place for the ") + leaf +
                                                " folder: set HOME, " + variable + " or " +
                                                flag_name);
    }
    *out = given ? given->text : JoinPath(data, leaf);
    return Status::Ok();
  };
  KVG_RETURN(choose(flags.store, "--store", "KVGRAFT_STORE", "store", &config->store_root));
  KVG_RETURN(
      choose(flags.models_dir, "--models-dir", "KVGRAFT_MODELS", "models", &config->models_dir));
  // A relative folder would move with the current folder of a child process.
  std::error_code error;
  for (std::string* path : {&config->store_root, &config->models_dir}) {
    auto absolute = std::filesystem::absolute(*path, error);
    if (!error) *path = absolute.string();
  }
  return Status::Ok();
}

Status SetBudgets(const Flags& flags, const Environment& environment, Config* config) {
  auto set = [&](const std::optional<std::string>& flag, const char* name, const char* variable,
                 uint64_t* out) {
    auto given = Pick(flag, name, environment, variable);
    if (!given) return Status::Ok();
    auto bytes = ParseBytes(given->text);
    if (!bytes.ok()) return Bad(*given, "a size such as 20GiB");
    *out = *bytes;
    return Status::Ok();
  };
  KVG_RETURN(set(flags.budget, "--budget", "KVGRAFT_BUDGET", &config->budget_bytes));
  return set(flags.free_floor, "--free-floor", "KVGRAFT_FREE_FLOOR", &config->free_floor_bytes);
}

Status SetNumbers(const Flags& flags, const Environment& environment, Config* config) {
  if (auto given = Pick(flags.ctx_size, "-c", environment, "LLAMA_ARG_CTX_SIZE")) {
    KVG_ASSIGN(config->n_ctx, ParseInt(*given, 0, 1 << 28));
  }
  config->n_threads = 0;
  if (auto given = Pick(flags.threads, "-t", environment, "LLAMA_ARG_THREADS")) {
    KVG_ASSIGN(int64_t threads, ParseInt(*given, -1, 1024));
    config->n_threads = threads > 0 ? static_cast<uint32_t>(threads) : 0;
  }
  if (config->n_threads == 0) config->n_threads = UsableCores();
  if (auto given = Pick(flags.ubatch_size, "-ub", environment, "LLAMA_ARG_UBATCH")) {
    KVG_ASSIGN(config->n_ubatch, ParseInt(*given, 1, 1 << 20));
  }
  if (auto given = Pick(flags.n_gpu_layers, "-ngl", environment, "LLAMA_ARG_N_GPU_LAYERS")) {
    KVG_ASSIGN(config->n_gpu_layers, ParseInt(*given, -1, 100000));
  }
  if (auto given =
          Pick(flags.rope_freq_base, "--rope-freq-base", environment, "LLAMA_ARG_ROPE_FREQ_BASE")) {
    KVG_ASSIGN(config->rope_freq_base, ParsePositive(*given));
  }
  if (auto given = Pick(flags.rope_freq_scale, "--rope-freq-scale", environment,
                        "LLAMA_ARG_ROPE_FREQ_SCALE")) {
    KVG_ASSIGN(config->rope_freq_scale, ParsePositive(*given));
  }
  return Status::Ok();
}

Status SetCache(const Flags& flags, const Environment& environment, Config* config) {
  if (auto given = Pick(flags.flash_attn, "-fa", environment, "LLAMA_ARG_FLASH_ATTN")) {
    if (given->text == "auto" || given->text == "-1") {
      config->attention = engine::Attention::kAuto;
    } else {
      auto on = ParseSwitch(*given);
      if (!on.ok()) return Bad(*given, "on, off or auto");
      config->attention = *on ? engine::Attention::kOn : engine::Attention::kOff;
    }
  }
  auto type = [&](const std::optional<std::string>& flag, const char* name, const char* variable,
                  std::string* out) {
    auto given = Pick(flag, name, environment, variable);
    if (given && given->text.empty()) return Bad(*given, "a cache type such as f16");
    if (given) *out = given->text;
    return Status::Ok();
  };
  KVG_RETURN(type(flags.cache_type_k, "-ctk", "LLAMA_ARG_CACHE_TYPE_K", &config->type_k));
  KVG_RETURN(type(flags.cache_type_v, "-ctv", "LLAMA_ARG_CACHE_TYPE_V", &config->type_v));
  if (auto given = Pick(flags.swa_full, "--swa-full", environment, "LLAMA_ARG_SWA_FULL")) {
    KVG_ASSIGN(config->swa_full, ParseSwitch(*given));
  }
  for (const std::string& path : flags.lora) config->adapters.push_back({path, 1.0f});
  for (const auto& [path, scale] : flags.lora_scaled) {
    Adapter adapter{path, 1.0f};
    KVG_ASSIGN(adapter.scale, ParsePositive({scale, "--lora-scaled"}));
    config->adapters.push_back(adapter);
  }
  return Status::Ok();
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

Result<Config> MakeConfig(const Flags& flags, const Environment& environment) {
  Config config;
  config.program_dir = ProgramDir();
  KVG_RETURN(SetPaths(flags, environment, &config));
  KVG_RETURN(SetBudgets(flags, environment, &config));
  KVG_RETURN(SetNumbers(flags, environment, &config));
  KVG_RETURN(SetCache(flags, environment, &config));
  if (auto given = Pick(flags.tenant, "--tenant", environment, "KVGRAFT_TENANT")) {
    for (char c : given->text) {
      if (static_cast<unsigned char>(c) < 0x20)
        return Bad(*given, "text without control characters");
    }
    config.tenant = given->text;
  }
  if (auto given = Pick(flags.model, "-m", environment, "LLAMA_ARG_MODEL")) {
    if (given->text.empty()) return Bad(*given, "a model's name or path");
    config.model = given->text;
  }
  return config;
}

Result<uint64_t> ParseBytes(std::string_view text) {
  const Status bad(Code::kInvalidArgument,
                   "expected a size such as 20GiB, got '" + std::string(text) + "'");
  double number = 0;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return bad;
  std::string unit(at, end);
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  double factor = 1;
  if (!unit.empty() && unit != "B") {
    const size_t power = std::string_view("KMGTP").find(static_cast<char>(unit[0] & ~0x20));
    const std::string rest = unit.substr(1);
    if (power == std::string_view::npos) return bad;
    if (rest.empty() || rest == "iB" || rest == "ib") {
      factor = std::pow(1024.0, static_cast<double>(power + 1));
    } else if (rest == "B" || rest == "b") {
      factor = std::pow(1000.0, static_cast<double>(power + 1));
    } else {
      return bad;
    }
  }
  if (number * factor >= 9.2e18) return bad;
  return static_cast<uint64_t>(number * factor);
}

std::string ProgramDir() {
  const std::string path = ProgramPath();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace kvgraft::app
