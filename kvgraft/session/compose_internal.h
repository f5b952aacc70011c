// The step of Attach that puts cells into the context, on its own: the calibration of the drift
// gate (drift_calibrate.cc) does it wrongly on purpose.
#pragma once

#include "kvgraft/session/compose.h"

namespace kvgraft::session {

struct CellRun {
  size_t first = 0, end = 0;  // tokens of the artifact; end <= n_image
  // How far the keys are turned: from `first` to n_past() of the context where it is done right.
  int64_t turn = 0;
};

// Puts the cells first .. end-1 of a stored image of n_image tokens behind the live sequence. Fills
// in move_ms, load_ms and tokens_reused.
Status AttachCells(engine::Context& context, ByteSpan stored, size_t n_image, const CellRun& run,
                   Attached* out);

}  // namespace kvgraft::session
