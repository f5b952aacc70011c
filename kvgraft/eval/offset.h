// How far a graft is off when it does not stand at the position that it was captured at: its keys
// turned once (graft/move.h), against the same text computed at the new position, with what the
// model itself does there and what the engine's own K-shift does beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::eval {

struct OffsetOptions {
  std::vector<engine::Pos> offsets = {1, 8, 128, 1024, 3000};
  uint32_t n_texts = 8;
  uint32_t n_context = 512;  // tokens that are moved; a multiple of the model's state alignment
  uint32_t n_scored = 64;    // teacher-forced tokens after them, 1 .. 256
  uint64_t seed = 1;
  engine::ContextOptions context;  // the profile's; n_ctx is set here
  std::vector<std::string> texts;  // further natural documents, beside the built-in ones
};

// One way to have the text at the new position, against the text computed there.
struct OffsetArm {
  double kl = 0;      // mean over the scored tokens of KL(computed there || this), nats
  double kl_max = 0;  // largest of one token
  uint32_t top1 = 0;  // tokens whose likeliest next token is the same
};

struct OffsetItem {
  uint32_t text = 0;
  engine::Pos offset = 0;
  uint32_t n_scored = 0;
  OffsetArm fresh;  // the text computed at 0: what the model itself makes of the offset
  OffsetArm moved;  // computed at 0, keys turned
  OffsetArm shift;  // computed at 0, shifted by the engine
  bool has_shift = false;
  double move_ms = 0;  // turning the keys, without loading the image
  double load_ms = 0;
};

// Means over the texts at one offset; errors are standard errors of the mean over texts.
struct OffsetSummary {
  engine::Pos offset = 0;
  uint32_t texts = 0, tokens = 0;
  struct Arm {
    double kl = 0, kl_error = 0, kl_max = 0, top1 = 0;
  };
  Arm fresh, moved, shift;
  bool has_shift = false;
  // KL of moved minus KL of the other arm, text by text: what texts have in common is gone.
  struct Difference {
    double mean = 0, error = 0;
  };
  Difference moved_minus_fresh, moved_minus_shift;
};

// Calls `on_item` after each (text, offset); returning false ends with kCancelled. Costs about
// n_context + 3 n_scored prefilled tokens an item. kUnsupported for states without planes.
using OffsetItemDone = std::function<bool(const OffsetItem&, size_t done, size_t total)>;
Result<std::vector<OffsetItem>> MeasureOffsets(engine::Model& model, const OffsetOptions& options,
                                               const OffsetItemDone& on_item = {});

std::vector<OffsetSummary> Summarise(const std::vector<OffsetItem>& items);

}  // namespace kvgraft::eval
