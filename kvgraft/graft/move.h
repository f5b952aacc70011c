// Grafts that are not at their own position: keys turned to other positions, cells put together.
// Pure functions over views; no engine.
//
// Keys are turned once, and from pristine state: each turn rounds every key to its type again. The
// angles are differences, in double, of the angles that the engine computed (core/rope.h), so that
// the result is what the engine would have written at the new position but for one rounding of the
// key (held within 1 unit of the last place of F16 by tests on every kind of RoPE).
#pragma once

#include <span>

#include "kvgraft/core/kv_state.h"

namespace kvgraft::graft {

// kUnsupported for a state that is valid at its own position only.
Status CheckMovable(const KvLayout& layout);

// Cells first .. first+count-1 of `table` in one state, for the cells from to_first on in another,
// the keys of every stream that carries a position turned `turn` positions further.
struct Placement {
  uint32_t table = 0;
  size_t first = 0, count = 0;
  size_t to_first = 0;
  int64_t turn = 0;
};

// Copies cells in all streams of their tables, keys turned on the way. Both views have the same
// layout and share no bytes; the positions of `to` are not changed. Where nothing is turned the
// bytes stay as they are.
// kInvalidArgument for cells that are not there and for a turn that leaves 0 .. 2^31-1, kMismatch
// for other layouts, kUnsupported for recurrent ones, all before a byte is written; kUnsupported
// for quantised keys of a type that is not read, after which the bytes of `to` are in part written:
// throw them away.
Status PlaceCells(const KvView& from, std::span<const Placement> placements,
                  const MutableKvView& to, uint32_t n_threads = 1);

// The same in place: turns all keys `delta` positions further and moves view->positions. Call
// StorePositions of the engine afterwards. Errors as above.
Status MoveKeys(MutableKvView* view, int64_t delta, uint32_t n_threads = 1);

}  // namespace kvgraft::graft
