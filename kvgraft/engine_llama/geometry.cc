#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

#include "kvgraft/engine_llama/geometry_internal.h"

namespace kvgraft::engine_llama {
namespace {

struct GgufDeleter {
  void operator()(gguf_context* g) const { gguf_free(g); }
};

// Keys of the model's own architecture in its file. libllama's accessors give neither arrays nor
// small tensors.
class ModelFile {
 public:
  static Result<ModelFile> Open(const ModelState& state) {
    ModelFile file;
    file.path_ = state.options.path;
    file.arch_ = state.info.architecture;
    file.gguf_.reset(gguf_init_from_file(file.path_.c_str(), {.no_alloc = true, .ctx = nullptr}));
    if (!file.gguf_) return Status(Code::kCorrupt, "model " + file.path_ + ": not readable");
    return file;
  }

  // A number, or element `layer` of an array of numbers; `fallback` when the key is absent.
  double Number(const std::string& key, double fallback, uint32_t layer = 0) const {
    const int64_t id = Find(key);
    if (id < 0) return fallback;
    const gguf_type type = gguf_get_kv_type(gguf_.get(), id);
    if (type != GGUF_TYPE_ARRAY) return Scalar(type, gguf_get_val_data(gguf_.get(), id), 0);
    const gguf_type item = gguf_get_arr_type(gguf_.get(), id);
    if (layer >= gguf_get_arr_n(gguf_.get(), id) || item == GGUF_TYPE_STRING) return fallback;
    return Scalar(item, gguf_get_arr_data(gguf_.get(), id), layer);
  }
  uint32_t U32(const std::string& key, uint32_t fallback, uint32_t layer = 0) const {
    return static_cast<uint32_t>(Number(key, fallback, layer));
  }
  float F32(const std::string& key, float fallback) const {
    return static_cast<float>(Number(key, fallback));
  }
  std::string Text(const std::string& key) const {
    const int64_t id = Find(key);
    if (id < 0 || gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_STRING) return "";
    return gguf_get_val_str(gguf_.get(), id);
  }
  bool IsArray(const std::string& key) const {
    const int64_t id = Find(key);
    return id >= 0 && gguf_get_kv_type(gguf_.get(), id) == GGUF_TYPE_ARRAY;
  }

  // An F32 tensor; empty when there is none of this name.
  Result<std::vector<float>> Tensor(const std::string& name) const {
    const int64_t id = gguf_find_tensor(gguf_.get(), name.c_str());
    if (id < 0) return std::vector<float>();
    if (gguf_get_tensor_type(gguf_.get(), id) != GGML_TYPE_F32) {
      return Status(Code::kUnsupported, "model " + path_ + ": " + name + " is not F32");
    }
    std::vector<float> values(gguf_get_tensor_size(gguf_.get(), id) / sizeof(float));
    std::ifstream in(path_, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(gguf_get_data_offset(gguf_.get()) +
                                         gguf_get_tensor_offset(gguf_.get(), id)));
    in.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
    if (!in) return Status(Code::kIo, "model " + path_ + ": cannot read " + name);
    return values;
  }

 private:
  int64_t Find(const std::string& key) const {
    return gguf_find_key(gguf_.get(), (arch_ + "." + key).c_str());
  }
  static double Scalar(gguf_type type, const void* data, size_t i) {
    const auto at = [&](auto zero) {
      std::memcpy(&zero, static_cast<const char*>(data) + i * sizeof(zero), sizeof(zero));
      return static_cast<double>(zero);
    };
    switch (type) {
      case GGUF_TYPE_UINT8:
        return at(uint8_t{});
      case GGUF_TYPE_INT8:
        return at(int8_t{});
      case GGUF_TYPE_BOOL:
        return at(uint8_t{});
      case GGUF_TYPE_UINT16:
        return at(uint16_t{});
      case GGUF_TYPE_INT16:
        return at(int16_t{});
      case GGUF_TYPE_UINT32:
        return at(uint32_t{});
      case GGUF_TYPE_INT32:
        return at(int32_t{});
      case GGUF_TYPE_UINT64:
        return at(uint64_t{});
      case GGUF_TYPE_INT64:
        return at(int64_t{});
      case GGUF_TYPE_FLOAT32:
        return at(float{});
      case GGUF_TYPE_FLOAT64:
        return at(double{});
      default:
        return 0;
    }
  }

  std::string path_, arch_;
  std::unique_ptr<gguf_context, GgufDeleter> gguf_;
};

// Period of full layers among windowed ones where the file does not say, and which layer of a
// period is the full one; from the papers and the published configurations of these models.
struct WindowPattern {
  const char* arch;
  uint32_t period;
  bool full_first;
};
constexpr WindowPattern kPatterns[] = {{"gemma2", 2, false},  {"gemma3", 6, false},
                                       {"cohere2", 4, false}, {"gpt-oss", 2, false},
                                       {"olmo2", 4, false},   {"exaone4", 4, false}};

Status FillWindows(const ModelState& state, const ModelFile& file,
                   std::vector<LayerGeometry>* layers) {
  if (state.info.sliding_window == 0) return Status::Ok();
  const char* key = "attention.sliding_window_pattern";
  for (const WindowPattern& p : kPatterns) {
    if (state.info.architecture != p.arch) continue;
    const uint32_t period = file.IsArray(key) ? p.period : file.U32(key, p.period);
    for (uint32_t i = 0; i < layers->size(); ++i) {
      const bool full = period != 0 && i % period == (p.full_first ? 0 : period - 1);
      (*layers)[i].windowed = file.IsArray(key) ? file.Number(key, 0, i) != 0 : !full;
    }
    return Status::Ok();
  }
  return Status(Code::kUnsupported, "planes: which layers of '" + state.info.architecture +
                                        "' have a sliding window is not known to this version");
}

// As the engine sets up a context (the parameters of ggml_rope_ext).
RopeSpec BaseRope(const ModelState& state, const ModelFile& file,
                  const engine::ContextOptions& options, uint32_t key_dim) {
  RopeSpec rope;
  rope.pairing = llama_model_rope_type(state.model.get()) == LLAMA_ROPE_TYPE_NORM
                     ? RopePairing::kInterleaved
                     : RopePairing::kHalfSplit;
  rope.n_rot = std::min(file.U32("rope.dimension_count", key_dim), key_dim);
  rope.freq_base =
      options.rope_freq_base > 0 ? options.rope_freq_base : file.F32("rope.freq_base", 10000.0f);
  float factor = file.F32("rope.scaling.factor", 0);
  if (factor == 0) factor = file.F32("rope.scale_linear", 0);
  const std::string scaling = file.Text("rope.scaling.type");
  rope.freq_scale = options.rope_freq_scale > 0 ? options.rope_freq_scale
                    : factor > 0                ? 1.0f / factor
                                                : 1.0f;
  if (scaling == "none") rope.freq_scale = 1.0f;
  rope.n_ctx_orig = file.U32("rope.scaling.original_context_length", state.info.n_ctx_train);
  rope.beta_fast = file.F32("rope.scaling.yarn_beta_fast", 32.0f);
  rope.beta_slow = file.F32("rope.scaling.yarn_beta_slow", 1.0f);
  rope.ext_factor = file.F32("rope.scaling.yarn_ext_factor", scaling == "yarn" ? 1.0f : 0.0f);
  rope.attn_factor = file.F32("rope.scaling.yarn_attn_factor", 1.0f);
  if (rope.ext_factor != 0) {
    // The length that the engine aims at, divided by what its rotation multiplies by itself.
    const float stretch = 1.0f / rope.freq_scale;
    const auto length = [&](float m) {
      return stretch <= 1.0f ? 1.0f : 0.1f * m * std::log(stretch) + 1.0f;
    };
    const float log_mul = file.F32("rope.scaling.yarn_log_multiplier", 0);
    const bool deepseek2 = state.info.architecture == "deepseek2";
    rope.attn_factor =
        log_mul != 0 ? length(deepseek2 ? log_mul : 1.0f) / length(log_mul) : length(1.0f);
    rope.attn_factor *= 1.0f / (1.0f + 0.1f * std::log(stretch));
  }
  rope.attn_factor *= file.F32("rope.scaling.attn_factor", 1.0f);
  return rope;
}

Status FillRopes(const ModelState& state, const ModelFile& file,
                 const engine::ContextOptions& options, ModelGeometry* geometry) {
  const std::string scaling = file.Text("rope.scaling.type");
  if (scaling == "longrope") {
    return Status(Code::kUnsupported,
                  "planes: RoPE of kind 'longrope' is not known to this version");
  }
  const uint32_t key_dim = geometry->layers.empty() ? 0 : geometry->layers[0].key_dim;
  const RopeSpec base = BaseRope(state, file, options, key_dim);
  KVG_ASSIGN(std::vector<float> factors, file.Tensor("rope_freqs.weight"));
  std::vector<RopeSpec> specs = {base};
  if (factors.size() == base.n_rot / 2 && !factors.empty()) specs[0].freq_factors = factors;
  // Windowed layers may have a base of their own, and no scaling.
  RopeSpec local = base;
  local.freq_base = file.F32("rope.freq_base_swa", 10000.0f);
  local.n_rot = std::min(file.U32("rope.dimension_count_swa", base.n_rot), key_dim);
  for (const float freq_base : {local.freq_base, base.freq_base}) {
    local.freq_base = freq_base;
    for (const float scale : {1.0f, base.freq_scale}) {
      local.freq_scale = scale;
      local.ext_factor = scale == 1.0f ? 0.0f : base.ext_factor;
      specs.push_back(local);
    }
  }
  if (geometry->indexer_dim > 0) {
    // Indexer keys are rotated in halves, whatever the model's other keys are.
    for (size_t i = 0, n = specs.size(); i < n; ++i) {
      specs.push_back(specs[i]);
      specs.back().pairing = RopePairing::kHalfSplit;
    }
  }
  // The rotated dimensions come first, or last (MLA).
  for (const RopeSpec& spec : specs) {
    for (const uint32_t offset : {0u, key_dim - spec.n_rot}) {
      RopeSpec one = spec;
      one.offset = offset;
      if (!CheckRope(one, key_dim).ok()) continue;
      auto& all = geometry->ropes;
      if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
    }
  }
  return Status::Ok();
}

}  // namespace

Result<ModelGeometry> ReadGeometry(const ModelState& state, const engine::ContextOptions& options) {
  if (!state.info.unsupported.empty()) {
    return Status(Code::kUnsupported, "planes: " + state.info.unsupported);
  }
  KVG_ASSIGN(const ModelFile file, ModelFile::Open(state));
  ModelGeometry geometry;
  geometry.kv_lora_rank = file.U32("attention.kv_lora_rank", 0);
  geometry.indexer_dim = file.U32("attention.indexer.key_length", 0);
  const uint32_t n_heads = std::max(1u, state.info.n_heads);
  const uint32_t head_dim = state.info.n_embd / n_heads;
  for (uint32_t i = 0; i < state.info.n_layers; ++i) {
    LayerGeometry layer;
    layer.n_kv_heads =
        file.U32("attention.head_count_kv", file.U32("attention.head_count", n_heads, i), i);
    layer.attention = layer.n_kv_heads > 0;
    layer.key_dim = file.U32("attention.key_length", head_dim);
    layer.value_dim = file.U32("attention.value_length", head_dim);
    geometry.layers.push_back(layer);
  }
  KVG_RETURN(FillWindows(state, file, &geometry.layers));
  KVG_RETURN(FillRopes(state, file, options, &geometry));
  return geometry;
}

}  // namespace kvgraft::engine_llama
