// The best affine map of a given rank from x to y (reduced-rank regression: Izenman, "Reduced-rank
// regression for the multivariate linear model", 1975), with a ridge, in closed form.
//
// For centred x [p], y [q] with moments G = X'X, C = X'Y, A = G + lambda I = L L', Z = L^-1 C and
// weights D (of each output's error): U = the top eigenvectors of (Z D)(Z D)',
//   encoder P = L^-T U [p][r], decoder B = U'Z [r][q], prediction mean_y + (x - mean_x) P B.
// Among all maps of rank r it has the least sum of (D error)^2, ridge included. Its first columns
// are the map of a lower rank.
#pragma once

#include "kvgraft/transfer/moments.h"

namespace kvgraft::transfer {

struct LowRankOptions {
  size_t rank = 0;       // 1 .. the number of inputs
  double lambda = 1e-4;  // of the mean diagonal of G
  // Of each output's error, as many as there are outputs taken; empty: 1.
  std::vector<double> weights;
  // Outputs first_output .. first_output+n_outputs-1 only; 0: all from the first on.
  size_t first_output = 0, n_outputs = 0;
  size_t n_iterations = 12;  // of the subspace iteration
  unsigned n_threads = 1;
};

struct LowRankMap {
  std::vector<double> mean_x, mean_y;
  math::Matrix encoder;  // [p][r]
  math::Matrix decoder;  // [r][q]
  double jitter = 0;     // what had to be added to A's equilibrated diagonal

  size_t rank() const { return encoder.cols(); }
  // Its first `rank` columns: the map that would have been fitted with that rank.
  LowRankMap Truncated(size_t rank) const;
};

// kInvalidArgument for a rank or outputs that are not there, fewer than two rows, moments that are
// not finite, or inputs so dependent that no small jitter helps.
Result<LowRankMap> FitLowRank(const PairMoments& moments, const LowRankOptions& options);

// What a map leaves of each output's variation over other rows, from their moments alone:
// rss = sum (y - prediction)^2, tss = sum (y - mean)^2, one for each output of the map.
struct Errors {
  std::vector<double> rss, tss;
  // 1 - sum rss / sum tss over outputs first .. first+n-1.
  double R2(size_t first, size_t n) const;
};
Errors HeldOutErrors(const LowRankMap& map, const PairMoments& moments, size_t first_output,
                     unsigned n_threads);

}  // namespace kvgraft::transfer
