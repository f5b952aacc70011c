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

// Which tokens of an artifact are decoded in their new place and which are attached.
struct AttachPlan {
  size_t first = 0;      // tokens skip .. first-1 are decoded as links; n: all of them are
  size_t end = 0;        // cells first .. end-1 are attached, tokens from `end` on decoded
  size_t first_row = 0;  // the first token whose row gives the loss of a held one; n: none is held
};

// For n tokens, n_image of them in the image, `skip` of them the head that is left out.
AttachPlan PlanAttach(size_t n, size_t n_image, size_t skip, size_t link_tokens,
                      size_t held_tokens);

// Puts the cells first .. end-1 of a stored image of n_image tokens behind the live sequence. Fills
// in move_ms, load_ms and tokens_reused.
Status AttachCells(engine::Context& context, ByteSpan stored, size_t n_image, const CellRun& run,
                   Attached* out);

}  // namespace kvgraft::session
