#include "kvgraft/transfer/low_rank.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace kvgraft::transfer {
namespace {

using math::Matrix;
using math::Op;

// A = diag(1/s) L L' diag(1/s): the equilibrated factor of the ridged moments.
struct Factor {
  Matrix lower;
  std::vector<double> scale;  // s
  double jitter = 0;
};

Result<Factor> FactorRidged(const PairMoments& m, double lambda, unsigned n_threads) {
  const size_t p = m.n_inputs();
  double trace = 0;
  for (size_t i = 0; i < p; ++i) trace += m.xx.row(i)[i];
  const double ridge = lambda * trace / static_cast<double>(p);
  Factor out;
  for (size_t i = 0; i < p; ++i) {
    const double d = m.xx.row(i)[i] + ridge;
    // An input that never varies has no part in the map.
    out.scale.push_back(d > 0 ? 1.0 / std::sqrt(d) : 0);
  }
  for (double jitter = 0; jitter <= 1e-8; jitter = jitter == 0 ? 1e-12 : 4 * jitter) {
    out.lower = Matrix(p, p);
    for (size_t i = 0; i < p; ++i) {
      for (size_t j = 0; j < i; ++j) {
        out.lower.row(i)[j] = m.xx.row(i)[j] * out.scale[i] * out.scale[j];
      }
      out.lower.row(i)[i] = 1.0 + jitter;
    }
    out.jitter = jitter;
    if (math::Cholesky(out.lower.view(), n_threads).ok()) return out;
  }
  return Status(Code::kInvalidArgument,
                "map: the inputs depend on each other linearly; give a larger ridge than " +
                    std::to_string(lambda) + " or more rows than " + std::to_string(m.n));
}

Status CheckFit(const PairMoments& m, const LowRankOptions& o, size_t n_outputs) {
  if (m.n < 2) return Status(Code::kInvalidArgument, "map: fewer than two rows");
  if (o.rank == 0 || o.rank > m.n_inputs()) {
    return Status(Code::kInvalidArgument, "map: rank " + std::to_string(o.rank) +
                                              ", expected 1 to " + std::to_string(m.n_inputs()));
  }
  if (o.first_output > m.n_outputs() || n_outputs > m.n_outputs() - o.first_output ||
      n_outputs == 0 || (!o.weights.empty() && o.weights.size() != n_outputs)) {
    return Status(Code::kInvalidArgument, "map: outputs " + std::to_string(o.first_output) +
                                              " to " + std::to_string(o.first_output + n_outputs) +
                                              " of " + std::to_string(m.n_outputs()) +
                                              ", weights of " + std::to_string(o.weights.size()));
  }
  return Status::Ok();
}

void ScaleRows(const std::vector<double>& scale, Matrix* m) {
  for (size_t i = 0; i < m->rows(); ++i) {
    for (size_t j = 0; j < m->cols(); ++j) m->row(i)[j] *= scale[i];
  }
}

}  // namespace

LowRankMap LowRankMap::Truncated(size_t r) const {
  KVG_CHECK(r >= 1 && r <= rank());
  LowRankMap out;
  out.mean_x = mean_x;
  out.mean_y = mean_y;
  out.jitter = jitter;
  out.encoder = Matrix(encoder.rows(), r);
  out.decoder = Matrix(r, decoder.cols());
  for (size_t i = 0; i < encoder.rows(); ++i) {
    std::copy_n(encoder.row(i), r, out.encoder.row(i));
  }
  for (size_t i = 0; i < r; ++i) {
    std::copy_n(decoder.row(i), decoder.cols(), out.decoder.row(i));
  }
  return out;
}

Result<LowRankMap> FitLowRank(const PairMoments& m, const LowRankOptions& o) {
  const size_t p = m.n_inputs();
  const size_t q =
      o.n_outputs == 0 ? m.n_outputs() - std::min(o.first_output, m.n_outputs()) : o.n_outputs;
  KVG_RETURN(CheckFit(m, o, q));
  KVG_ASSIGN(Factor factor, FactorRidged(m, o.lambda, o.n_threads));
  Matrix z(p, q);
  for (size_t i = 0; i < p; ++i) std::copy_n(m.xy.row(i) + o.first_output, q, z.row(i));
  ScaleRows(factor.scale, &z);
  math::SolveLower(factor.lower.view(), Op::kAsIs, z.view(), o.n_threads);

  Matrix explained(p, p);
  {
    Matrix weighted = z;
    for (size_t i = 0; i < p && !o.weights.empty(); ++i) {
      for (size_t j = 0; j < q; ++j) weighted.row(i)[j] *= o.weights[j];
    }
    math::Multiply(1.0, weighted.view(), Op::kAsIs, weighted.view(), Op::kTransposed, 0.0,
                   explained.view(), o.n_threads, math::Part::kLower);
  }
  math::MirrorLower(explained.view());
  KVG_ASSIGN(math::Eigenpairs top,
             math::TopEigenvectors(explained.view(), o.rank, o.n_iterations, o.n_threads));

  LowRankMap map;
  map.jitter = factor.jitter;
  map.mean_x = m.mean_x;
  map.mean_y.assign(m.mean_y.begin() + static_cast<int64_t>(o.first_output),
                    m.mean_y.begin() + static_cast<int64_t>(o.first_output + q));
  map.decoder = Matrix(o.rank, q);
  math::Multiply(1.0, top.vectors.view(), Op::kTransposed, z.view(), Op::kAsIs, 0.0,
                 map.decoder.view(), o.n_threads);
  math::SolveLower(factor.lower.view(), Op::kTransposed, top.vectors.view(), o.n_threads);
  ScaleRows(factor.scale, &top.vectors);
  map.encoder = std::move(top.vectors);
  return map;
}

double Errors::R2(size_t first, size_t n) const {
  double r = 0, t = 0;
  for (size_t i = first; i < first + n; ++i) {
    r += rss[i];
    t += tss[i];
  }
  return 1.0 - r / t;
}

Errors HeldOutErrors(const LowRankMap& map, const PairMoments& m, size_t first_output,
                     unsigned n_threads) {
  const size_t p = m.n_inputs(), r = map.rank(), q = map.decoder.cols();
  KVG_CHECK(map.encoder.rows() == p && first_output + q <= m.n_outputs());
  Matrix full = m.xx;
  math::MirrorLower(full.view());
  Matrix gp(p, r), h(r, r), cp(r, q), hb(r, q);
  math::Multiply(1.0, full.view(), Op::kAsIs, map.encoder.view(), Op::kAsIs, 0.0, gp.view(),
                 n_threads);
  math::Multiply(1.0, map.encoder.view(), Op::kTransposed, gp.view(), Op::kAsIs, 0.0, h.view(),
                 n_threads);
  math::Multiply(1.0, map.encoder.view(), Op::kTransposed, m.xy.view().Block(0, first_output, p, q),
                 Op::kAsIs, 0.0, cp.view(), n_threads);
  math::Multiply(1.0, h.view(), Op::kAsIs, map.decoder.view(), Op::kAsIs, 0.0, hb.view(),
                 n_threads);
  // The means of other rows are elsewhere: the prediction is off by as much as it does not follow.
  std::vector<double> code(r), off(q);
  for (size_t i = 0; i < p; ++i) {
    for (size_t k = 0; k < r; ++k) {
      code[k] += (m.mean_x[i] - map.mean_x[i]) * map.encoder.row(i)[k];
    }
  }
  for (size_t j = 0; j < q; ++j) off[j] = m.mean_y[first_output + j] - map.mean_y[j];
  for (size_t k = 0; k < r; ++k) {
    for (size_t j = 0; j < q; ++j) off[j] -= code[k] * map.decoder.row(k)[j];
  }
  Errors out;
  out.rss.resize(q);
  out.tss.resize(q);
  for (size_t j = 0; j < q; ++j) {
    double sum = m.yy[first_output + j] + static_cast<double>(m.n) * off[j] * off[j];
    for (size_t k = 0; k < r; ++k) {
      sum += map.decoder.row(k)[j] * (hb.row(k)[j] - 2 * cp.row(k)[j]);
    }
    out.rss[j] = sum;
    out.tss[j] = m.yy[first_output + j];
  }
  return out;
}

}  // namespace kvgraft::transfer
