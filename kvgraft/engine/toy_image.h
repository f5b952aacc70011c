// The toy's image of a sequence, little-endian:
//   u32 magic "TOYS"  u32 version 1  u32 n_tokens  u32 n_layers  u32 kv_dim  u32 layout
//   i32 position[n_tokens]                       first .. first+n_tokens-1
//   per layer: f32 K [n_tokens][kv_dim], then f32 V [n_tokens][kv_dim] (layout 0, rows)
//              or V [kv_dim][n_tokens] (layout 1, columns)
#pragma once

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/image_buffer.h"
#include "kvgraft/core/kv_state.h"
#include "kvgraft/core/status.h"
#include "kvgraft/engine/toy_net.h"

namespace kvgraft::engine::toy {

// On disk: never renumber.
enum class ValueLayout : uint32_t { kRows = 0, kColumns = 1 };

size_t ImageBytes(size_t n_tokens);
// Writes the cells of positions first .. first+n_tokens-1; out.size() == ImageBytes(n_tokens).
void WriteImage(const Cells& cells, size_t first, size_t n_tokens, ValueLayout layout,
                MutableByteSpan out);
// kCorrupt when `image` is not exactly such an image; allocates nothing.
Status CheckImage(ByteSpan image, size_t first, size_t n_tokens, ValueLayout layout);
// Reads an image that CheckImage has passed into the cells of its positions.
void ReadImage(ByteSpan image, size_t first, size_t n_tokens, ValueLayout layout, Cells& cells);

// The toy's streams: keys and values of two layers, F32.
KvLayout MakeLayout(const RopeSpec& rope, ValueLayout layout);
// kCorrupt for bytes that are no image; positions may be any ascending ones.
template <typename Byte>
Result<BasicKvView<Byte>> View(std::span<Byte> image, const KvLayout& streams, ValueLayout layout);
Result<ImageBuffer> FormatImage(const std::vector<std::vector<int32_t>>& positions,
                                ValueLayout layout);
Status StorePositions(MutableByteSpan image, ValueLayout layout,
                      const std::vector<std::vector<int32_t>>& positions);

}  // namespace kvgraft::engine::toy
