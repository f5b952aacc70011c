#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <string>

#include "kvgraft/core/random.h"
#include "kvgraft/math/matrix.h"

namespace kvgraft::math {
namespace {

constexpr size_t kFurther = 64;  // columns beside those asked for, dropped at the end
constexpr uint64_t kSeed = 0x6b7667726166;

using RowMajor = ::Eigen::Matrix<double, ::Eigen::Dynamic, ::Eigen::Dynamic, ::Eigen::RowMajor>;

::Eigen::Map<RowMajor> Map(Matrix* m) {
  return {m->view().data, static_cast<::Eigen::Index>(m->rows()),
          static_cast<::Eigen::Index>(m->cols())};
}

// One pass of Cholesky QR; false where the columns are too nearly dependent for it.
bool CholeskyQr(Matrix* y, unsigned n_threads) {
  Matrix gram(y->cols(), y->cols());
  Multiply(1.0, y->view(), Op::kTransposed, y->view(), Op::kAsIs, 0.0, gram.view(), n_threads,
           Part::kLower);
  if (!Cholesky(gram.view(), n_threads).ok()) return false;
  RowMajor transposed = Map(y).transpose();  // L Q' = y'
  SolveLower(gram.view(), Op::kAsIs, {transposed.data(), y->cols(), y->rows(), y->rows()},
             n_threads);
  Map(y) = transposed.transpose();
  return true;
}

// Makes the columns of y orthonormal: by Cholesky QR, twice, since the first pass loses the square
// of y's condition and the second repairs it (Yamamoto et al., ETNA 44, 2015); by Householder's
// reflections, which are slower, where y has not the rank for that.
void Orthonormalise(Matrix* y, unsigned n_threads) {
  const Matrix before = *y;
  if (CholeskyQr(y, n_threads) && CholeskyQr(y, n_threads)) return;
  *y = before;
  const ::Eigen::HouseholderQR<RowMajor> qr(Map(y));
  Map(y) = qr.householderQ() * RowMajor::Identity(Map(y).rows(), Map(y).cols());
}

// The sign that an eigenvector is given: its largest component is positive.
void FixSigns(Matrix* vectors) {
  for (size_t j = 0; j < vectors->cols(); ++j) {
    double largest = 0;
    for (size_t i = 0; i < vectors->rows(); ++i) {
      if (std::abs(vectors->row(i)[j]) > std::abs(largest)) largest = vectors->row(i)[j];
    }
    if (largest >= 0) continue;
    for (size_t i = 0; i < vectors->rows(); ++i) vectors->row(i)[j] = -vectors->row(i)[j];
  }
}

}  // namespace

Result<Eigenpairs> TopEigenvectors(ConstMatrixView a, size_t n_top, size_t n_iterations,
                                   unsigned n_threads) {
  if (a.rows != a.cols || n_top == 0 || n_top > a.rows) {
    return Status(Code::kInvalidArgument, "eigenvectors: " + std::to_string(n_top) +
                                              " of a matrix of " + std::to_string(a.rows) + " by " +
                                              std::to_string(a.cols));
  }
  const size_t n = a.rows, m = std::min(n, n_top + kFurther);
  Matrix q(n, m), y(n, m);
  Random random(kSeed);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < m; ++j) q.row(i)[j] = random.Unit() - 0.5;
  }
  Orthonormalise(&q, n_threads);
  for (size_t it = 0; it < n_iterations; ++it) {
    Multiply(1.0, a, Op::kAsIs, q.view(), Op::kAsIs, 0.0, y.view(), n_threads);
    Orthonormalise(&y, n_threads);
    std::swap(q, y);
  }
  // Rayleigh and Ritz: the best that the subspace holds.
  Multiply(1.0, a, Op::kAsIs, q.view(), Op::kAsIs, 0.0, y.view(), n_threads);
  Matrix small(m, m);
  Multiply(1.0, q.view(), Op::kTransposed, y.view(), Op::kAsIs, 0.0, small.view(), n_threads);
  const ::Eigen::SelfAdjointEigenSolver<RowMajor> solver((Map(&small) + Map(&small).transpose()) *
                                                         0.5);
  if (solver.info() != ::Eigen::Success) {
    return Status(Code::kInternal, "eigenvectors: no convergence");
  }
  Eigenpairs out;
  Matrix turn(m, n_top);
  for (size_t j = 0; j < n_top; ++j) {
    const auto from = static_cast<::Eigen::Index>(m - 1 - j);  // the solver's values rise
    out.values.push_back(solver.eigenvalues()(from));
    for (size_t i = 0; i < m; ++i) {
      turn.row(i)[j] = solver.eigenvectors()(static_cast<::Eigen::Index>(i), from);
    }
  }
  out.vectors = Matrix(n, n_top);
  Multiply(1.0, q.view(), Op::kAsIs, turn.view(), Op::kAsIs, 0.0, out.vectors.view(), n_threads);
  FixSigns(&out.vectors);
  return out;
}

}  // namespace kvgraft::math
