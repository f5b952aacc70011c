// A state as arrays: what the opaque image of an engine holds, stream by stream. A model's cache is
// described by streams per layer and not by one [layer][head][token][dim] pair, because models
// differ: windows, latent rows (MLA), indexer keys, layers without keys of their own.
//
// Views point into the image: nothing is copied, and what an algorithm does not change keeps its
// bytes. Positions are the cells' own, never an index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/rope.h"

namespace kvgraft {

// Element types of a cache, by GGUF's numbers.
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kIq4Nl = 20,
  kBF16 = 30,
};
// "f16"; "type 77" for a number that is not in the list.
std::string DTypeName(DType type);
// Elements and bytes of a block: 1 and 2 for F16, 32 and 34 for Q8_0; kUnsupported.
struct BlockSize {
  uint32_t elements = 1, bytes = 1;
};
Result<BlockSize> BlockOf(DType type);

// Never renumber: exports name them.
enum class StreamKind : uint32_t {
  kKey = 0,  // with RoPE applied
  kValue = 1,
  kMlaLatent = 2,   // DeepSeek's compressed KV, shared by all heads; no position in it
  kMlaRopeKey = 3,  // the part of an MLA row that carries the position
  kIndexerKey = 4,  // lightning indexer (DeepSeek sparse attention)
  // Recurrent layers keep one row and not one for each token. It is valid at its own position, and
  // its elements are as the engine lays them out: one head, as wide as the row.
  kConvState = 5,  // the last inputs of a convolution (Mamba, LFM2) or token shift (RWKV)
  kScanState = 6,  // what the recurrence carries on
};
const char* StreamKindName(StreamKind kind);  // "key"
// Whether attention looks it up, so that RoPE may be in it: not values, not recurrent states.
bool IsKey(StreamKind kind);

// What a cell table lists.
enum class TableKind : uint32_t {
  kAll,        // every token
  kWindow,     // those that a sliding window still holds
  kIndexer,    // every token, for what the lightning indexer looks at
  kRecurrent,  // one cell, at the last token's position
};
const char* TableKindName(TableKind kind);  // "all"

// How a stream's elements lie in the image.
enum class StreamOrder {
  kRows,     // [cell][head][dim]
  kColumns,  // [head][dim][cell]: values without flash attention
};

// One array of a state, whatever the number of cells.
struct StreamSpec {
  StreamKind kind = StreamKind::kKey;
  uint32_t layer = 0;
  uint32_t table = 0;  // index into KvLayout::tables
  uint32_t n_heads = 0, head_dim = 0;
  uint32_t row_offset = 0;  // rows only: elements of a cell's row before this stream's (MLA)
  DType type = DType::kF16;
  StreamOrder order = StreamOrder::kRows;
  int32_t rope = -1;      // index into KvLayout::ropes; -1: no position in it
  uint32_t hadamard = 0;  // blocks of so many dimensions are stored rotated by H/sqrt(n); 0: none
  // The model itself rotates blocks of so many dimensions by H/sqrt(n) after RoPE, and the numbers
  // are so (indexer keys of DeepSeek-V3.2); 0: it does not.
  uint32_t rope_hadamard = 0;
  uint32_t width() const { return n_heads * head_dim; }  // elements of one cell
  bool operator==(const StreamSpec&) const = default;
};

// What every state of one model and configuration looks like.
struct KvLayout {
  std::vector<RopeSpec> ropes;
  std::vector<StreamSpec> streams;
  std::vector<TableKind> tables = {TableKind::kAll};
  // Some of it is recurrent: valid at its own position only, nothing can be cut out or joined.
  bool recurrent() const;
  bool operator==(const KvLayout&) const = default;
};

// A stream's bytes inside an image. Rows: cell i starts at data[i * stride]. Columns: element e of
// cell i is at data[(e * n_cells + i) * element bytes], and stride is unused.
template <typename Byte>
struct StreamBytes {
  std::span<Byte> data;
  uint64_t stride = 0;
};

template <typename Byte>
struct BasicKvView {
  const KvLayout* layout = nullptr;             // outlives the view
  std::vector<std::vector<int32_t>> positions;  // per table, per cell, ascending
  std::vector<StreamBytes<Byte>> streams;       // as in the layout
  size_t n_cells(size_t stream) const { return positions[layout->streams[stream].table].size(); }
};
using KvView = BasicKvView<const uint8_t>;
using MutableKvView = BasicKvView<uint8_t>;

}  // namespace kvgraft
