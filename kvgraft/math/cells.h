// The cells of a state's streams as F32 numbers, and back: element types, and the rotation that
// engines apply to quantised caches, are undone and redone here.
//
// Writing back what was read gives the same bytes for every type: a value that is on a type's grid,
// rotated there and back in F32, is rounded to the same grid point again (held by cells_test.cc for
// all types, rotated as engines do it, and by tests/models over real states).
#pragma once

#include "kvgraft/core/kv_state.h"

namespace kvgraft::math {

// Reads cells first .. first+count-1 of a stream into `out`, [count][n_heads][head_dim].
// kInvalidArgument for a range or a size that is not so; kUnsupported for an element type.
Status ReadCells(const KvView& view, size_t stream, size_t first, size_t count,
                 std::span<float> out);
// Writes them.
Status WriteCells(const MutableKvView& view, size_t stream, size_t first, size_t count,
                  std::span<const float> in);

// The view for reading of a view for writing.
KvView Readable(const MutableKvView& view);

// n values in rows of `block`, each replaced by H/sqrt(block) times it (Walsh-Hadamard in natural
// order; its own inverse). block: a power of two that divides n.
void Hadamard(std::span<float> values, uint32_t block);

}  // namespace kvgraft::math
