// Products of dense matrices, and what is solved with them. Row-major, a row's elements contiguous.
//
// Work is cut into tiles of a fixed size, each computed by one thread with one call of the BLAS:
// the bits of a result depend on the BLAS and the processor, never on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kvgraft/core/parallel.h"
#include "kvgraft/core/status.h"

namespace kvgraft::math {

template <typename T>
struct BasicMatrixView {
  T* data = nullptr;
  size_t rows = 0, cols = 0;
  size_t stride = 0;  // elements from a row to the next

  T* row(size_t i) const { return data + i * stride; }
  BasicMatrixView Block(size_t row_0, size_t col_0, size_t n_rows, size_t n_cols) const {
    return {data + row_0 * stride + col_0, n_rows, n_cols, stride};
  }
  operator BasicMatrixView<const T>() const { return {data, rows, cols, stride}; }
};
using MatrixView = BasicMatrixView<double>;
using ConstMatrixView = BasicMatrixView<const double>;
using FloatMatrixView = BasicMatrixView<float>;
using ConstFloatMatrixView = BasicMatrixView<const float>;

// A matrix that owns its numbers, zero at first.
template <typename T>
class BasicMatrix {
 public:
  BasicMatrix() = default;
  BasicMatrix(size_t rows, size_t cols) : rows_(rows), cols_(cols), values_(rows * cols) {}
  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  T* row(size_t i) { return values_.data() + i * cols_; }
  const T* row(size_t i) const { return values_.data() + i * cols_; }
  BasicMatrixView<T> view() { return {values_.data(), rows_, cols_, cols_}; }
  BasicMatrixView<const T> view() const { return {values_.data(), rows_, cols_, cols_}; }
  const std::vector<T>& values() const { return values_; }
  bool operator==(const BasicMatrix&) const = default;

 private:
  size_t rows_ = 0, cols_ = 0;
  std::vector<T> values_;
};
using Matrix = BasicMatrix<double>;
using FloatMatrix = BasicMatrix<float>;

// As a matrix stands, or with rows and columns exchanged.
enum class Op { kAsIs, kTransposed };
// Which part of a result is computed.
enum class Part { kAll, kLower };  // kLower: all tiles that touch the diagonal or lie below it

inline constexpr size_t kTile = 512;  // rows and columns

// Runs f(row, col, n_rows, n_cols) for every tile of a result over threads.
template <typename F>
void OverTiles(size_t rows, size_t cols, Part part, unsigned n_threads, F&& f) {
  const size_t across = (cols + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  KVG_CHECK(OverThreads(across * down, n_threads, [&](size_t i) {
              const size_t row = i / across * kTile, col = i % across * kTile;
              if (part == Part::kAll || col < row + kTile) {
                f(row, col, std::min(kTile, rows - row), std::min(kTile, cols - col));
              }
              return Status::Ok();
            }).ok());
}

// c = alpha op(a) op(b) + beta c. Shapes must agree (checked; a fault of the caller).
void Multiply(double alpha, ConstMatrixView a, Op op_a, ConstMatrixView b, Op op_b, double beta,
              MatrixView c, unsigned n_threads, Part part = Part::kAll);
void Multiply(float alpha, ConstFloatMatrixView a, Op op_a, ConstFloatMatrixView b, Op op_b,
              float beta, FloatMatrixView c, unsigned n_threads, Part part = Part::kAll);

// Copies the part below the diagonal to that above it.
void MirrorLower(MatrixView a);

// The lower triangle of a symmetric positive definite matrix becomes L with L L' = a; what lies
// above the diagonal is not read, and is overwritten. kInvalidArgument when a pivot is not
// positive: then `a` is in part overwritten.
Status Cholesky(MatrixView a, unsigned n_threads);
// Solves L X = b, or L' X = b, in place; L as Cholesky leaves it.
void SolveLower(ConstMatrixView l, Op op, MatrixView b, unsigned n_threads);

// The n_top largest eigenvalues of a symmetric positive semidefinite matrix, falling, and their
// eigenvectors as columns [rows][n_top], by subspace iteration from a seeded start (Halko,
// Martinsson, Tropp, arXiv 0909.4061, section 4.5) with n_iterations products. Vectors near the end
// of the list are mixed with those just behind it where eigenvalues lie close: what is kept is, to
// that accuracy, the best subspace of its rank. Each column's largest component is positive.
struct Eigenpairs {
  std::vector<double> values;
  Matrix vectors;
};
Result<Eigenpairs> TopEigenvectors(ConstMatrixView a, size_t n_top, size_t n_iterations,
                                   unsigned n_threads);

}  // namespace kvgraft::math
