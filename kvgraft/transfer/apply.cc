#include "kvgraft/transfer/apply.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace kvgraft::transfer {
namespace {

using math::FloatMatrix;
using math::Op;

constexpr size_t kRowsAtOnce = 512;

FloatMatrix Rounded(const math::Matrix& m) {
  FloatMatrix out(m.rows(), m.cols());
  for (size_t i = 0; i < m.rows(); ++i) {
    for (size_t j = 0; j < m.cols(); ++j) out.row(i)[j] = static_cast<float>(m.row(i)[j]);
  }
  return out;
}

}  // namespace

RowMap::RowMap(const LowRankMap& map)
    : encoder_(Rounded(map.encoder)), decoder_(Rounded(map.decoder)), bias_(map.mean_y.size()) {
  std::vector<double> code(map.rank());
  for (size_t i = 0; i < map.mean_x.size(); ++i) {
    for (size_t k = 0; k < code.size(); ++k) code[k] += map.mean_x[i] * map.encoder.row(i)[k];
  }
  for (size_t j = 0; j < bias_.size(); ++j) {
    double b = map.mean_y[j];
    for (size_t k = 0; k < code.size(); ++k) b -= code[k] * map.decoder.row(k)[j];
    bias_[j] = static_cast<float>(b);
  }
}

void RowMap::Apply(math::ConstFloatMatrixView x, math::FloatMatrixView y,
                   unsigned n_threads) const {
  KVG_CHECK(x.cols == n_inputs() && y.cols == n_outputs() && x.rows == y.rows);
  FloatMatrix code(x.rows, rank());
  math::Multiply(1.0f, x, Op::kAsIs, encoder_.view(), Op::kAsIs, 0.0f, code.view(), n_threads);
  for (size_t i = 0; i < y.rows; ++i) std::copy(bias_.begin(), bias_.end(), y.row(i));
  math::Multiply(1.0f, code.view(), Op::kAsIs, decoder_.view(), Op::kAsIs, 1.0f, y, n_threads);
}

Status MapCells(const RowMap& map, const KvView& source, size_t first, size_t count,
                const MutableKvView& target, size_t to_first, unsigned n_threads) {
  KVG_ASSIGN(const RowLayout from, MakeRowLayout(*source.layout));
  KVG_ASSIGN(const RowLayout to, MakeRowLayout(*target.layout));
  if (from.width != map.n_inputs() || to.width != map.n_outputs()) {
    return Status(Code::kInvalidArgument, "map: from rows of " + std::to_string(map.n_inputs()) +
                                              " to rows of " + std::to_string(map.n_outputs()) +
                                              "; the states have " + std::to_string(from.width) +
                                              " and " + std::to_string(to.width));
  }
  FloatMatrix x(std::min(kRowsAtOnce, count), from.width), y(x.rows(), to.width);
  for (size_t done = 0; done < count; done += kRowsAtOnce) {
    const size_t n = std::min(kRowsAtOnce, count - done);
    std::vector<size_t> cells(n);
    std::iota(cells.begin(), cells.end(), first + done);
    const math::FloatMatrixView in = x.view().Block(0, 0, n, from.width);
    const math::FloatMatrixView out = y.view().Block(0, 0, n, to.width);
    KVG_RETURN(ReadRows(source, from, cells, in, n_threads));
    map.Apply(in, out, n_threads);
    KVG_RETURN(WriteRows(target, to, to_first + done, out, n_threads));
  }
  return Status::Ok();
}

}  // namespace kvgraft::transfer
