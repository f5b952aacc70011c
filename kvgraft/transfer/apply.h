// A fitted low-rank map, carried out: states of one model become states of another.
#pragma once

#include "kvgraft/transfer/low_rank.h"
#include "kvgraft/transfer/rows.h"

namespace kvgraft::transfer {

// The weights in F32, the means folded into one bias: y = x P B + bias.
class RowMap {
 public:
  explicit RowMap(const LowRankMap& map);

  size_t n_inputs() const { return encoder_.rows(); }
  size_t n_outputs() const { return decoder_.cols(); }
  size_t rank() const { return encoder_.cols(); }

  // x: [n][n_inputs] -> y: [n][n_outputs]. 2 * rank * (n_inputs + n_outputs) operations a row. The
  // bits of a row do not depend on n_threads.
  void Apply(math::ConstFloatMatrixView x, math::FloatMatrixView y, unsigned n_threads) const;

 private:
  math::FloatMatrix encoder_, decoder_;
  std::vector<float> bias_;
};

// Maps source cells first .. first+count-1 into the cells from to_first on, at the positions that
// these have: positions taken out of the source's keys, all rows mapped, keys turned, written in
// the target's cache type; 512 tokens at a time, so that memory does not grow with the length.
// kInvalidArgument when the map is not from rows of such a source to rows of such a target.
Status MapCells(const RowMap& map, const KvView& source, size_t first, size_t count,
                const MutableKvView& target, size_t to_first, unsigned n_threads);

}  // namespace kvgraft::transfer
