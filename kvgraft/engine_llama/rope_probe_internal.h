// Finds out by trial which RoPE each layer's keys carry, so that a model file's claim is never
// taken on trust: one token alone attends to nothing but itself, so its keys at two positions
// differ by their rotation and by nothing else, in every layer.
#pragma once

#include "kvgraft/engine_llama/planes_internal.h"

namespace kvgraft::engine_llama {

// Sets `rope` of the streams of planes->layout, and its ropes. Decodes one token a few times in
// small contexts of its own. kUnsupported, with the layer, when none of the geometry's ropes turns
// a layer's keys as the engine does.
Status FindRopes(const ModelState& state, const ModelGeometry& geometry,
                 const engine::ContextOptions& options, Planes* planes);

}  // namespace kvgraft::engine_llama
