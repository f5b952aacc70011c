// Private to engine_llama: RAII over libllama's handles, and the pieces that model.cc and
// context.cc share.
#pragma once

#include <llama.h>

#include <memory>
#include <string>

#include "kvgraft/engine_llama/engine_llama.h"
#include "kvgraft/engine_llama/image.h"

namespace kvgraft::engine_llama {

struct ModelDeleter {
  void operator()(llama_model* m) const { llama_model_free(m); }
};
struct ContextDeleter {
  void operator()(llama_context* c) const { llama_free(c); }
};
struct AdapterDeleter {
  void operator()(llama_adapter_lora* a) const { llama_adapter_lora_free(a); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelDeleter>;
using ContextPtr = std::unique_ptr<llama_context, ContextDeleter>;
using AdapterPtr = std::unique_ptr<llama_adapter_lora, AdapterDeleter>;

struct LoadedAdapter {
  AdapterPtr handle;
  float scale = 1.0f;
  std::string sha256;
};

// Everything that contexts share; outlives them through shared_ptr. Adapters go before the model.
struct ModelState {
  ModelPtr model;
  std::vector<LoadedAdapter> adapters;
  engine::ModelInfo info;
  ModelOptions options;
  std::string sha256;  // of the model file (of all parts, for split files)
  std::string tokenizer_sha256;
  const llama_vocab* vocab() const { return llama_model_get_vocab(model.get()); }
};

// libllama's first error line since the last call, "" if none; process-wide, as the
// library's log is.
std::string TakeErrorLog();
void InstallLog();  // idempotent

// A value of the model file's metadata, "" if absent (arrays are not readable).
std::string MetaValue(const llama_model* model, const std::string& key);

// ggml type by name ("f16", "q8_0", ...); kInvalidArgument lists the names.
Result<ggml_type> ParseCacheType(const std::string& name);

// Rows with logits in one physical batch; more are spread over several batches. Bounds the output
// buffer (n_vocab floats a row).
inline constexpr uint32_t kMaxOutputs = 64;
// Cells beyond n_ctx for padding rows and for RunUnrelatedTraffic.
inline constexpr uint32_t kSpareCells = 256;

// Fills in what is 0 or kAuto; kInvalidArgument for what cannot be.
Status ResolveOptions(const engine::ModelInfo& info, engine::ContextOptions* options);
// libllama's parameters for resolved options: a live and a scratch sequence in one unified cache.
llama_context_params MakeParams(const engine::ContextOptions& options);

// Compat and build fields of a context with these resolved options.
StateIdentity BuildIdentity(const ModelState& state, const engine::ContextOptions& options,
                            const llama_context* context);

// SHA-256 of the model file and of its vocabulary, remembered in options.hash_cache_dir.
Status ComputeHashes(ModelState& state);

Result<std::unique_ptr<engine::Context>> NewLlamaContext(std::shared_ptr<ModelState> state,
                                                         const engine::ContextOptions& options);

}  // namespace kvgraft::engine_llama
