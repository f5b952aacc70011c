// What a linear map needs to know of paired rows: their number, means and centred second moments.
// Rows come once and are not kept; every later choice (inputs, outputs, ridge, rank, held-out
// error) is made from the same moments.
#pragma once

#include <cstdint>
#include <vector>

#include "kvgraft/math/matrix.h"

namespace kvgraft::transfer {

// Moments of rows (x, y). Rows are centred about the mean of their chunk in F32, multiplied in F32,
// and merged in F64 by the update of Chan, Golub and LeVeque ("Updating formulae and a pairwise
// algorithm for computing sample variances", 1979): sums of raw products would lose what little
// varies in channels whose mean is large, which keys have.
//
// The bits depend on the rows and how they were handed over, never on the number of threads.
struct PairMoments {
  PairMoments() = default;
  PairMoments(size_t n_inputs, size_t n_outputs);

  size_t n_inputs() const { return mean_x.size(); }
  size_t n_outputs() const { return mean_y.size(); }
  // 8 bytes each for xx and xy: n_inputs * (n_inputs + n_outputs).
  static uint64_t BytesFor(uint64_t n_inputs, uint64_t n_outputs);

  // x: [n][n_inputs], y: [n][n_outputs], any n. All finite: kInvalidArgument, and nothing is added.
  Status Add(math::ConstFloatMatrixView x, math::ConstFloatMatrixView y, unsigned n_threads);
  // Rows of another set of the same sizes, as if they had been added here.
  void Merge(const PairMoments& other, unsigned n_threads);

  uint64_t n = 0;
  std::vector<double> mean_x, mean_y;
  math::Matrix xx;         // [n_inputs][n_inputs], sum of (x - mean)(x - mean)', lower triangle
  math::Matrix xy;         // [n_inputs][n_outputs]
  std::vector<double> yy;  // [n_outputs], the diagonal only
};

}  // namespace kvgraft::transfer
