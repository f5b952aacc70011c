// The bytes of llama_state_seq_get_data (sequence state version 3), as far as they must be checked
// before the engine reads them: libllama asserts, and so ends the process, on some malformed
// states, and takes sizes from them.
//
//   u32 magic 0xaf143cd8, i32 seq id of the writer, then for each cache (one; two for models with
//   sliding-window layers: global, then window):
//     u32 n_stream (1), u32 cell_count, cell_count x { i32 pos, u32 n_seq_id (1), i32 seq id },
//     u32 v_trans, u32 n_layer,
//     n_layer x { i32 type, u64 row bytes, cell_count rows }                              keys
//     v_trans 0: n_layer x { i32 type, u64 row bytes, cell_count rows }                   values
//     v_trans 1: n_layer x { i32 type, u32 element bytes, u32 width, width columns of cell_count }
//   Caches without values (MLA, indexer keys) have no third part. A recurrent state comes last:
//     u32 cell_count (1), i32 pos (of the last token), u32 n_seq_id (0), u32 s_trans (0), u32
//     n_layer, for each recurrent layer { i32 type, u64 row bytes, a row }, convolution states
//     first, then scan states (there may be none)
#pragma once

#include <optional>
#include <vector>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/status.h"

namespace kvgraft::engine_llama {

inline constexpr uint32_t kImageMagic = 0xaf143cd8;

struct LayerLayout {
  int32_t type = 0;        // ggml_type
  uint64_t row_bytes = 0;  // of one cell; for transposed values element bytes times width
  uint32_t element_bytes = 0, width = 0;  // transposed values only
  bool operator==(const LayerLayout&) const = default;
};

struct CacheLayout {
  bool v_transposed = false;
  std::vector<LayerLayout> keys, values;  // values may be empty
  bool operator==(const CacheLayout&) const = default;
};

struct RecurrentLayout {
  uint32_t n_layer = 0;           // of the model; not all need be recurrent
  std::vector<LayerLayout> rows;  // type and row_bytes of each
  bool operator==(const RecurrentLayout&) const = default;
};

// What every image of one context looks like, whatever its number of tokens.
struct ImageLayout {
  std::vector<CacheLayout> caches;
  std::optional<RecurrentLayout> recurrent;
  bool operator==(const ImageLayout&) const = default;
};

// Learns the layout from an image of one token at `pos` that the engine just wrote; `recurrent`: a
// recurrent state is the last part of it, or all. kUnsupported when the bytes do not parse as above
// in exactly one way.
Result<ImageLayout> LearnLayout(ByteSpan image, bool recurrent = false, int32_t pos = 0);

// Ok when `image` holds tokens at positions first .. end-1 in exactly this layout: the first cache
// all of them, further ones (sliding windows) a run that ends with the last. Reads only what it has
// checked; allocates nothing. kCorrupt otherwise, saying where.
Status CheckImageBytes(ByteSpan image, const ImageLayout& layout, int32_t end, int32_t first = 0);
// The same for cells at any ascending positions.
Status CheckImageShape(ByteSpan image, const ImageLayout& layout);

}  // namespace kvgraft::engine_llama
