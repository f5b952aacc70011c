#include "kvgraft/transfer/moments.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kvgraft/core/parallel.h"

namespace kvgraft::transfer {
namespace {

using math::ConstFloatMatrixView;
using math::FloatMatrix;
using math::Op;

constexpr size_t kChunkRows = 2048;

// Means in F64, and the rows less their mean.
void Centre(ConstFloatMatrixView rows, std::vector<double>* mean, FloatMatrix* centred) {
  mean->assign(rows.cols, 0);
  for (size_t i = 0; i < rows.rows; ++i) {
    for (size_t j = 0; j < rows.cols; ++j) (*mean)[j] += double{rows.row(i)[j]};
  }
  for (double& m : *mean) m /= static_cast<double>(rows.rows);
  *centred = FloatMatrix(rows.rows, rows.cols);
  for (size_t i = 0; i < rows.rows; ++i) {
    for (size_t j = 0; j < rows.cols; ++j) {
      centred->row(i)[j] = static_cast<float>(rows.row(i)[j] - (*mean)[j]);
    }
  }
}

bool AllFinite(ConstFloatMatrixView m) {
  for (size_t i = 0; i < m.rows; ++i) {
    if (!std::all_of(m.row(i), m.row(i) + m.cols, [](float v) { return std::isfinite(v); })) {
      return false;
    }
  }
  return true;
}

// to += a'b + weight * u v', tile by tile; with `lower`, tiles that touch the diagonal or lie
// below.
void AddProducts(const FloatMatrix& a, const FloatMatrix& b, double weight,
                 const std::vector<double>& u, const std::vector<double>& v, math::Matrix* to,
                 math::Part part, unsigned n_threads) {
  math::OverTiles(
      to->rows(), to->cols(), part, n_threads, [&](size_t row, size_t col, size_t n, size_t m) {
        FloatMatrix product(n, m);
        math::Multiply(1.0f, a.view().Block(0, row, a.rows(), n), Op::kTransposed,
                       b.view().Block(0, col, b.rows(), m), Op::kAsIs, 0.0f, product.view(), 1);
        for (size_t i = 0; i < n; ++i) {
          double* out = to->row(row + i) + col;
          const double w = weight * u[row + i];
          for (size_t j = 0; j < m; ++j) {
            out[j] += double{product.row(i)[j]} + w * v[col + j];
          }
        }
      });
}

std::vector<double> Difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

}  // namespace

PairMoments::PairMoments(size_t n_inputs, size_t n_outputs)
    : mean_x(n_inputs),
      mean_y(n_outputs),
      xx(n_inputs, n_inputs),
      xy(n_inputs, n_outputs),
      yy(n_outputs) {}

uint64_t PairMoments::BytesFor(uint64_t n_inputs, uint64_t n_outputs) {
  return 8 * (n_inputs * (n_inputs + n_outputs) + n_inputs + 2 * n_outputs);
}

Status PairMoments::Add(ConstFloatMatrixView x, ConstFloatMatrixView y, unsigned n_threads) {
  KVG_CHECK(x.cols == n_inputs() && y.cols == n_outputs() && x.rows == y.rows);
  if (!AllFinite(x) || !AllFinite(y)) {
    return Status(Code::kInvalidArgument, "moments: a number of the rows is not finite");
  }
  for (size_t at = 0; at < x.rows; at += kChunkRows) {
    const size_t rows = std::min(kChunkRows, x.rows - at);
    FloatMatrix cx, cy;
    std::vector<double> mx, my;
    Centre(x.Block(at, 0, rows, x.cols), &mx, &cx);
    Centre(y.Block(at, 0, rows, y.cols), &my, &cy);
    const auto held = static_cast<double>(n), added = static_cast<double>(rows);
    const double weight = held * added / (held + added);
    const std::vector<double> dx = Difference(mx, mean_x), dy = Difference(my, mean_y);
    AddProducts(cx, cx, weight, dx, dx, &xx, math::Part::kLower, n_threads);
    AddProducts(cx, cy, weight, dx, dy, &xy, math::Part::kAll, n_threads);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < yy.size(); ++j) yy[j] += double{cy.row(i)[j]} * cy.row(i)[j];
    }
    for (size_t j = 0; j < yy.size(); ++j) yy[j] += weight * dy[j] * dy[j];
    for (size_t j = 0; j < mean_x.size(); ++j) mean_x[j] += dx[j] * added / (held + added);
    for (size_t j = 0; j < mean_y.size(); ++j) mean_y[j] += dy[j] * added / (held + added);
    n += rows;
  }
  return Status::Ok();
}

void PairMoments::Merge(const PairMoments& other, unsigned n_threads) {
  KVG_CHECK(other.n_inputs() == n_inputs() && other.n_outputs() == n_outputs());
  if (other.n == 0) return;
  const auto held = static_cast<double>(n), added = static_cast<double>(other.n);
  const double weight = held * added / (held + added), share = added / (held + added);
  const std::vector<double> dx = Difference(other.mean_x, mean_x);
  const std::vector<double> dy = Difference(other.mean_y, mean_y);
  KVG_CHECK(OverThreads(n_inputs(), n_threads, [&](size_t i) {
              for (size_t j = 0; j <= i; ++j) {
                xx.row(i)[j] += other.xx.row(i)[j] + weight * dx[i] * dx[j];
              }
              for (size_t j = 0; j < n_outputs(); ++j) {
                xy.row(i)[j] += other.xy.row(i)[j] + weight * dx[i] * dy[j];
              }
              return Status::Ok();
            }).ok());
  for (size_t j = 0; j < yy.size(); ++j) yy[j] += other.yy[j] + weight * dy[j] * dy[j];
  for (size_t j = 0; j < mean_x.size(); ++j) mean_x[j] += share * dx[j];
  for (size_t j = 0; j < mean_y.size(); ++j) mean_y[j] += share * dy[j];
  n += other.n;
}

}  // namespace kvgraft::transfer
