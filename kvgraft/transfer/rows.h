// States as rows of numbers, one a token, for maps between models: the keys and values of all
// layers and heads side by side, keys in content space, that is with their position taken out.
#pragma once

#include <vector>

#include "kvgraft/core/kv_state.h"
#include "kvgraft/math/matrix.h"

namespace kvgraft::transfer {

// Where the streams of a state stand in a row: keys of all layers, then all else.
//   keys:   [layer][head][dim] of every stream that carries a position by RoPE, RoPE undone
//   others: [layer][head][dim], values and latents
struct RowLayout {
  std::vector<size_t> streams;  // indices into the layout's streams, in the row's order
  std::vector<size_t> offsets;  // of each in the row
  size_t n_keys = 0;            // columns of the keys: the others begin here
  size_t width = 0;
};

// kUnsupported for states whose cells do not all stand for every token: sliding windows, recurrent
// layers, indexer keys.
Result<RowLayout> MakeRowLayout(const KvLayout& layout);

// Reads cells[i] of the state into row i of `out`, [cells.size()][width]. RoPE is undone with the
// angles that the engine computed, YaRN's magnitude included. kInvalidArgument for cells that are
// not there; errors of math::ReadCells.
Status ReadRows(const KvView& view, const RowLayout& rows, std::span<const size_t> cells,
                math::FloatMatrixView out, unsigned n_threads = 1);

// Writes rows into the cells first .. first+in.rows-1, keys turned to the positions of these cells.
Status WriteRows(const MutableKvView& view, const RowLayout& rows, size_t first,
                 math::ConstFloatMatrixView in, unsigned n_threads = 1);

}  // namespace kvgraft::transfer
