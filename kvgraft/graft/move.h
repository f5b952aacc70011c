// Grafts that are not at their own position: keys turned to other positions, cells put together.
// Pure functions over views; no engine.
#pragma once

#include <span>

#include "kvgraft/core/kv_state.h"

namespace kvgraft::graft {

// Turns the keys of every stream that carries a position from where its cells are to `delta`
// positions further, and moves view->positions. Call StorePositions of the engine afterwards.
// `first_cells`, one a table: earlier cells stay as they are; empty: all move.
//
// Once, and from pristine state: each call rounds every key to its type again. The angles are
// differences, in double, of the angles that the engine computed (core/rope.h), so that the result
// is what the engine would have written at the new position but for one rounding of the key (held
// within 1 unit of the last place of F16 by tests on every kind of RoPE).
// kInvalidArgument when a position would leave 0 .. 2^31-1; kUnsupported for quantised keys of a
// type that is not read. On an error the view's bytes are in part moved: throw them away.
Status MoveKeys(MutableKvView* view, int64_t delta, uint32_t n_threads = 1,
                std::span<const size_t> first_cells = {});

// Copies cells from_first .. from_first+count-1 of `table` in all its streams to the cells from
// `to_first` on. Both views have the same layout. Bytes are copied as they are; positions are not.
Status CopyCells(const KvView& from, uint32_t table, size_t from_first, size_t count,
                 const MutableKvView& to, size_t to_first);

}  // namespace kvgraft::graft
