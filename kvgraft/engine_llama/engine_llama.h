// The engine over stock libllama; the only module that includes llama.h. Any GGUF model, any ggml
// backend that the installed library has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::engine_llama {

struct AdapterOptions {
  std::string path;
  float scale = 1.0f;
};

struct ModelOptions {
  std::string path;
  int32_t n_gpu_layers = -1;             // -1: all that the backend takes
  std::vector<AdapterOptions> adapters;  // LoRA; content hash and scale enter the identity
  std::string tenant;                    // enters the identity: states are never shared across it
  // Where SHA-256 of model files is remembered by path, size, mtime and inode; empty: not at all.
  std::string hash_cache_dir;
  bool vocabulary_only = false;  // tokenise and inspect only
};

// kNotFound, kCorrupt (not a GGUF, truncated), kUnsupported (architecture), kExhausted.
Result<std::unique_ptr<engine::Model>> LoadModel(const ModelOptions& options,
                                                 const engine::Progress& progress = {});

struct EngineVersion {
  std::string version;      // of libllama, "0.5.0-dev"
  std::string ggml;         // of ggml, "0.25.3"
  std::string build;        // fingerprint of the loaded shared libraries: equal only for equal code
  std::string system_info;  // backends and processor features
  std::string cpu_features;  // canonical list of the processor features that kernels choose by
};
EngineVersion GetEngineVersion();

// Sends the library's log lines at warning level and above to `sink` ("" prefix-free lines);
// by default they are dropped, except the last error, which enters the Status of the failed call.
void SetLogSink(std::function<void(const std::string& line)> sink);

}  // namespace kvgraft::engine_llama
