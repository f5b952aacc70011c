// Options of a context: what is left open filled in, what cannot be refused, and libllama's own.
#include <algorithm>
#include <thread>

#include "kvgraft/engine_llama/internal.h"

namespace kvgraft::engine_llama {

using engine::Attention;
using engine::ContextOptions;

namespace {

const char* const kCacheTypes[] = {"f32",  "f16",    "bf16", "q8_0", "q4_0",
                                   "q4_1", "iq4_nl", "q5_0", "q5_1"};

}  // namespace

Result<ggml_type> ParseCacheType(const std::string& name) {
  std::string names;
  for (const char* known : kCacheTypes) {
    names += (names.empty() ? "" : " ") + std::string(known);
    if (name != known) continue;
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
      const char* type_name = ggml_type_name(static_cast<ggml_type>(t));
      if (type_name != nullptr && name == type_name) return static_cast<ggml_type>(t);
    }
  }
  return Status(Code::kInvalidArgument, "cache type \"" + name + "\": expected one of " + names);
}

Status ResolveOptions(const engine::ModelInfo& info, ContextOptions* o) {
  if (o->n_ctx == 0) o->n_ctx = info.n_ctx_train;
  if (o->n_threads == 0) o->n_threads = std::max(1u, std::thread::hardware_concurrency());
  KVG_ASSIGN(const ggml_type type_v, ParseCacheType(o->type_v));
  KVG_RETURN(ParseCacheType(o->type_k).status());
  if (o->attention == Attention::kAuto) {
    o->attention = ggml_is_quantized(type_v) ? Attention::kOn : Attention::kOff;
  }
  if (o->attention == Attention::kOff && ggml_is_quantized(type_v)) {
    return Status(Code::kInvalidArgument, "cache type " + o->type_v +
                                              " for values needs flash attention; use -fa on, or "
                                              "-ctv f16");
  }
  if (o->row_quantum == 0 || o->n_ubatch == 0 || o->n_ubatch % o->row_quantum != 0) {
    return Status(Code::kInvalidArgument, "physical batch of " + std::to_string(o->n_ubatch) +
                                              " rows: expected a multiple of the row quantum " +
                                              std::to_string(o->row_quantum) + " (-ub)");
  }
  if (o->row_quantum > kSpareCells) {
    return Status(Code::kInvalidArgument, "row quantum " + std::to_string(o->row_quantum) +
                                              ": at most " + std::to_string(kSpareCells));
  }
  return Status::Ok();
}

llama_context_params MakeParams(const ContextOptions& o) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = o.n_ctx + kSpareCells;
  params.n_batch = params.n_ubatch = o.n_ubatch;
  params.n_seq_max = 2;
  params.n_outputs_max =
      std::min(o.n_ubatch, (kMaxOutputs + o.row_quantum - 1) / o.row_quantum * o.row_quantum);
  params.n_threads = params.n_threads_batch = static_cast<int32_t>(o.n_threads);
  params.flash_attn_type = o.attention == Attention::kOn ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                                         : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.rope_freq_base = o.rope_freq_base;
  params.rope_freq_scale = o.rope_freq_scale;
  params.type_k = ParseCacheType(o.type_k).value();
  params.type_v = ParseCacheType(o.type_v).value();
  params.swa_full = o.swa_full;
  params.kv_unified = true;
  params.no_perf = true;
  return params;
}

}  // namespace kvgraft::engine_llama
