// A context for models whose state, or a part of it, is recurrent (Mamba, RWKV, LFM2 and other
// hybrids). Such a state has no cells: rows of another sequence cannot ride in its batches, and
// what has been taken in cannot be taken out again. So the padding rule becomes a block rule:
//
//   A sequence is divided into blocks of row_quantum tokens, from its first. A token is always
//   computed as a row of its block's batch: earlier tokens of the block before it, later ones or
//   padding after it, which a causal model cannot see. The state of the last block border, a
//   checkpoint, is kept beside the engine, and what comes after it is computed again from there.
//
// Any split of a prompt then gives the same state and the same logits in every bit, as with
// LlamaContext, and a state can be kept at block borders.
#pragma once

#include <deque>
#include <vector>

#include "kvgraft/engine_llama/context_internal.h"

namespace kvgraft::engine_llama {

class BlockContext : public LlamaContext {
 public:
  using LlamaContext::LlamaContext;

  Status StartAt(engine::Pos first) override;
  // Back to n, by way of the last checkpoint before it; kUnsupported where none is left. Of the
  // last few borders there are checkpoints, and one at or before the last position at which an
  // artifact can end.
  Status Truncate(engine::Pos n) override;
  Status Decode(std::span<const engine::Token> tokens, engine::Schedule schedule, size_t n_logits,
                engine::Logits* logits, const engine::Progress& progress) override;
  // At a position inside of a block: its tokens computed from the border, in a batch of their own.
  // Such an image can be compared, not continued exactly (ModelInfo::state_alignment).
  Result<size_t> ImageBytes() override;
  Status SaveImage(MutableByteSpan out) override;
  Status LoadImageAt(ByteSpan image, engine::Pos first, engine::Pos end) override;
  Status ShiftByEngine(engine::Pos delta) override;

 private:
  static constexpr size_t kCheckpoints = 4;
  static constexpr engine::Pos kNowhere = -1;

  struct Checkpoint {
    engine::Pos pos = 0;         // of the first token after it
    std::vector<uint8_t> state;  // the recurrent part; empty: nothing has been taken in
  };

  // The border up to which one batch computes: as many whole blocks before `end` as fit, or the
  // end of the one block that is open. With outputs from `first_output` on.
  engine::Pos BlocksWithin(engine::Pos end, engine::Pos first_output) const;
  // Positions from .. to-1 into batch_.
  void AddTokens(engine::Pos from, engine::Pos to, engine::Pos first_output);
  // The engine at border_, where it may have gone beyond; a checkpoint of it is kept.
  Status BackToBorder();
  Status Keep();
  // The oldest, or the one after it where that would leave none before the last position at which
  // an artifact can end.
  void DropOne();
  // Runs the tokens from border_ to `end` and padding behind them.
  Status RunFromBorder(engine::Pos end, uint32_t n_padding, engine::Pos first_output);
  // Computes whole blocks before n_past_ that are open.
  Status CloseBlocks();
  // The engine at n_past_.
  Status Settle();
  // Logits of positions first .. last-1 of the batch that ran last, whose first row is at row_0;
  // the first row of `logits` is at `zone`.
  Status CopyRows(engine::Pos first, engine::Pos last, engine::Pos row_0, engine::Pos zone,
                  engine::Logits* logits) const;
  // Tokens up to `end`, which are in tokens_; logits of the positions from `zone` on.
  Status DecodeExact(engine::Pos end, engine::Pos zone, engine::Logits* logits, Polling* polling);
  Status DecodeFast(engine::Pos end, engine::Pos zone, engine::Logits* logits, Polling* polling);

  std::vector<engine::Token> tokens_;  // at tokens_from_ and after
  engine::Pos tokens_from_ = 0;
  engine::Pos border_ = 0;  // all before it is computed, by the block rule
  engine::Pos engine_ = 0;  // what the engine holds ends here; kNowhere: padding is in it
  std::deque<Checkpoint> checkpoints_;  // ascending, at most kCheckpoints
};

}  // namespace kvgraft::engine_llama
