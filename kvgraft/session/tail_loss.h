// The loss of a text's last tokens, taken while they are decoded: -ln p(token given all before it),
// in nats, by the padding rule, so that it does not depend on how the text is split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

class TailLoss {
 public:
  // The first token whose row is needed for the loss of the last `count` of n tokens; the first
  // token of a text has no loss.
  static size_t FirstRow(size_t n, size_t count) { return n > count + 1 ? n - count - 1 : 0; }

  // `tokens` must outlive this. Rows of tokens from `first_row` on get logits; tokens.size(): none.
  TailLoss(std::span<const engine::Token> tokens, size_t first_row)
      : tokens_(tokens), first_row_(first_row) {}

  // Decodes tokens begin .. end-1 on top of what the context holds, and takes the loss of the
  // tokens after each of the rows. Calls follow each other without a gap; a gap forgets what was
  // before it.
  Status Decode(engine::Context& context, size_t begin, size_t end,
                const engine::Progress& progress = {});

  // In nats, the last one for the last token decoded that a row stood before.
  const std::vector<double>& values() const { return values_; }

 private:
  std::span<const engine::Token> tokens_;
  size_t first_row_;
  size_t end_ = 0;  // of the last Decode
  std::vector<double> values_;
};

// Millionths of a nat, rounded, as a manifest keeps them; empty when one is not finite.
std::vector<uint64_t> ToMicronats(const std::vector<double>& nats);

}  // namespace kvgraft::session
