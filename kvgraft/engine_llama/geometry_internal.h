// What the model file says about the shape of its cache. A claim: planes_internal.h holds it
// against the image that the engine writes, and rope_probe_internal.h against the keys.
#pragma once

#include <vector>

#include "kvgraft/core/rope.h"
#include "kvgraft/engine_llama/internal.h"

namespace kvgraft::engine_llama {

struct LayerGeometry {
  uint32_t n_kv_heads = 0, key_dim = 0, value_dim = 0;
  bool windowed = false;  // keeps its cells in the sliding window's cache
  bool attention = true;  // has keys and values; else it is recurrent
};

struct ModelGeometry {
  std::vector<LayerGeometry> layers;
  uint32_t kv_lora_rank = 0;  // MLA: width of the latent; 0: none
  uint32_t indexer_dim = 0;   // lightning indexer: one key a layer, this wide; 0: none
  // Every way of RoPE that some layer of this model may use, likeliest first.
  std::vector<RopeSpec> ropes;
};

// kUnsupported, by name, for architectures whose cache is none of the known kinds.
Result<ModelGeometry> ReadGeometry(const ModelState& state, const engine::ContextOptions& options);

}  // namespace kvgraft::engine_llama
