#include "kvgraft/math/matrix.h"

#if defined(__APPLE__)
#include <Accelerate/Accelerate.h>
#else
#include <cblas.h>
#endif

#include <algorithm>
#include <cmath>
#include <string>

#include "kvgraft/core/parallel.h"

namespace kvgraft::math {
namespace {

void SingleThreaded() {
#if defined(OPENBLAS_VERSION)
  static const bool once = [] {
    openblas_set_num_threads(1);  // the tiles are the parallelism
    return true;
  }();
  (void)once;
#endif
}

CBLAS_TRANSPOSE Blas(Op op) { return op == Op::kAsIs ? CblasNoTrans : CblasTrans; }
int Int(size_t n) { return static_cast<int>(n); }

void Gemm(double alpha, ConstMatrixView a, Op op_a, ConstMatrixView b, Op op_b, double beta,
          MatrixView c, size_t k) {
  cblas_dgemm(CblasRowMajor, Blas(op_a), Blas(op_b), Int(c.rows), Int(c.cols), Int(k), alpha,
              a.data, Int(a.stride), b.data, Int(b.stride), beta, c.data, Int(c.stride));
}
void Gemm(float alpha, ConstFloatMatrixView a, Op op_a, ConstFloatMatrixView b, Op op_b, float beta,
          FloatMatrixView c, size_t k) {
  cblas_sgemm(CblasRowMajor, Blas(op_a), Blas(op_b), Int(c.rows), Int(c.cols), Int(k), alpha,
              a.data, Int(a.stride), b.data, Int(b.stride), beta, c.data, Int(c.stride));
}

// Rows row_0 .. of op(m).
template <typename View>
View RowsOf(const View& m, Op op, size_t row_0, size_t n) {
  return op == Op::kAsIs ? m.Block(row_0, 0, n, m.cols) : m.Block(0, row_0, m.rows, n);
}

template <typename T>
void MultiplyTiles(T alpha, BasicMatrixView<const T> a, Op op_a, BasicMatrixView<const T> b,
                   Op op_b, T beta, BasicMatrixView<T> c, unsigned n_threads, Part part) {
  SingleThreaded();
  const size_t k = op_a == Op::kAsIs ? a.cols : a.rows;
  KVG_CHECK((op_a == Op::kAsIs ? a.rows : a.cols) == c.rows);
  KVG_CHECK((op_b == Op::kAsIs ? b.rows : b.cols) == k);
  KVG_CHECK((op_b == Op::kAsIs ? b.cols : b.rows) == c.cols);
  const Op other = op_b == Op::kAsIs ? Op::kTransposed : Op::kAsIs;  // columns of b as rows
  OverTiles(c.rows, c.cols, part, n_threads, [&](size_t row, size_t col, size_t n, size_t m) {
    Gemm(alpha, RowsOf(a, op_a, row, n), op_a, RowsOf(b, other, col, m), op_b, beta,
         c.Block(row, col, n, m), k);
  });
}

// The unblocked factorisation of one diagonal block.
bool FactorBlock(MatrixView a) {
  for (size_t j = 0; j < a.rows; ++j) {
    const double* lj = a.row(j);
    double d = a.row(j)[j];
    for (size_t k = 0; k < j; ++k) d -= lj[k] * lj[k];
    if (!(d > 0) || !std::isfinite(d)) return false;
    const double root = std::sqrt(d);
    a.row(j)[j] = root;
    for (size_t i = j + 1; i < a.rows; ++i) {
      double* li = a.row(i);
      double sum = li[j];
      for (size_t k = 0; k < j; ++k) sum -= li[k] * lj[k];
      li[j] = sum / root;
    }
  }
  return true;
}

// Solves X L' = b in place, b's rows over threads.
void SolveRight(ConstMatrixView l, MatrixView b, unsigned n_threads) {
  KVG_CHECK(
      OverThreads((b.rows + kTile - 1) / kTile, n_threads, [&](size_t i) {
        const MatrixView rows = b.Block(i * kTile, 0, std::min(kTile, b.rows - i * kTile), b.cols);
        cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, Int(rows.rows),
                    Int(rows.cols), 1.0, l.data, Int(l.stride), rows.data, Int(rows.stride));
        return Status::Ok();
      }).ok());
}

}  // namespace

void Multiply(double alpha, ConstMatrixView a, Op op_a, ConstMatrixView b, Op op_b, double beta,
              MatrixView c, unsigned n_threads, Part part) {
  MultiplyTiles<double>(alpha, a, op_a, b, op_b, beta, c, n_threads, part);
}
void Multiply(float alpha, ConstFloatMatrixView a, Op op_a, ConstFloatMatrixView b, Op op_b,
              float beta, FloatMatrixView c, unsigned n_threads, Part part) {
  MultiplyTiles<float>(alpha, a, op_a, b, op_b, beta, c, n_threads, part);
}

void MirrorLower(MatrixView a) {
  KVG_CHECK(a.rows == a.cols);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < i; ++j) a.row(j)[i] = a.row(i)[j];
  }
}

Status Cholesky(MatrixView a, unsigned n_threads) {
  KVG_CHECK(a.rows == a.cols);
  SingleThreaded();
  constexpr size_t kBlock = 128;
  for (size_t at = 0; at < a.rows; at += kBlock) {
    const size_t n = std::min(kBlock, a.rows - at), below = a.rows - at - n;
    const MatrixView diagonal = a.Block(at, at, n, n);
    if (!FactorBlock(diagonal)) {
      return Status(Code::kInvalidArgument,
                    "Cholesky: the matrix is not positive definite (rows " + std::to_string(at) +
                        " to " + std::to_string(at + n) + " of " + std::to_string(a.rows) + ")");
    }
    if (below == 0) break;
    const MatrixView panel = a.Block(at + n, at, below, n);
    SolveRight(diagonal, panel, n_threads);
    Multiply(-1.0, panel, Op::kAsIs, panel, Op::kTransposed, 1.0,
             a.Block(at + n, at + n, below, below), n_threads, Part::kLower);
  }
  return Status::Ok();
}

void SolveLower(ConstMatrixView l, Op op, MatrixView b, unsigned n_threads) {
  KVG_CHECK(l.rows == l.cols && l.rows == b.rows);
  SingleThreaded();
  KVG_CHECK(
      OverThreads((b.cols + kTile - 1) / kTile, n_threads, [&](size_t i) {
        const MatrixView part = b.Block(0, i * kTile, b.rows, std::min(kTile, b.cols - i * kTile));
        cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, Blas(op), CblasNonUnit, Int(part.rows),
                    Int(part.cols), 1.0, l.data, Int(l.stride), part.data, Int(part.stride));
        return Status::Ok();
      }).ok());
}

}  // namespace kvgraft::math
