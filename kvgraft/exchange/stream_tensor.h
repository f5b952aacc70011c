// One stream of a state as the bytes of a tensor, [n_heads][n_cells][head_dim], and back. Caches of
// F32, F16 and BF16 keep their bits: elements are moved, never converted. Quantised caches become
// F32 with the engine's rotation undone, and are quantised again on the way back.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvgraft/core/kv_state.h"
#include "kvgraft/exchange/key_order.h"
#include "kvgraft/exchange/safetensors.h"

namespace kvgraft::exchange {

// "layers.0.key"
std::string TensorName(const StreamSpec& stream);
// "positions" for the table of all cells, "positions.window" and so on for the others.
std::string PositionsName(TableKind table);
// Name, type and shape for so many cells; the range is not filled in.
Tensor TensorFor(const StreamSpec& stream, uint64_t n_cells);

// `out` has the tensor's bytes. kUnsupported for an element type, kInvalidArgument for sizes.
Status ReadTensor(const KvView& view, size_t stream, const KeyOrder& order, MutableByteSpan out);
// The other way. The bytes of an unquantised stream are then those that ReadTensor was given.
Status WriteTensor(const MutableKvView& view, size_t stream, const KeyOrder& order, ByteSpan in);

// Whether all numbers of a tensor of F32, F16 or BF16 are finite.
bool AllFinite(std::string_view dtype, ByteSpan bytes);

}  // namespace kvgraft::exchange
