#include "kvgraft/transfer/rows.h"

#include <algorithm>
#include <string>

#include "kvgraft/core/parallel.h"
#include "kvgraft/math/cells.h"

namespace kvgraft::transfer {
namespace {

constexpr size_t kCellsAtOnce = 64;

// One turn for each rope of the layout and each of the positions.
using Turns = std::vector<std::vector<RopeTurn>>;

template <typename Make>
Turns MakeTurns(const KvLayout& layout, std::span<const int32_t> positions, Make make) {
  Turns turns(layout.ropes.size());
  for (size_t r = 0; r < layout.ropes.size(); ++r) {
    turns[r].reserve(positions.size());
    for (const int32_t pos : positions) turns[r].push_back(make(layout.ropes[r], pos));
  }
  return turns;
}

void TurnCell(const KvLayout& layout, const StreamSpec& spec, const Turns& turns, size_t i,
              std::span<float> cell) {
  const auto rope = static_cast<size_t>(spec.rope);
  for (uint32_t h = 0; h < spec.n_heads; ++h) {
    turns[rope][i].Apply(layout.ropes[rope],
                         cell.subspan(size_t{h} * spec.head_dim, spec.head_dim));
  }
}

Status CheckShape(const RowLayout& rows, size_t n_rows, size_t n_cells, size_t cols) {
  if (cols == rows.width && n_rows == n_cells) return Status::Ok();
  return Status(Code::kInvalidArgument,
                "map: " + std::to_string(n_rows) + " rows of " + std::to_string(cols) + " for " +
                    std::to_string(n_cells) + " cells of " + std::to_string(rows.width));
}

}  // namespace

Result<RowLayout> MakeRowLayout(const KvLayout& layout) {
  if (layout.tables != std::vector{TableKind::kAll}) {
    return Status(Code::kUnsupported,
                  "map: the state has cells of kind '" +
                      std::string(TableKindName(layout.tables.back())) +
                      "'; only states that keep every token in every layer can be mapped");
  }
  RowLayout rows;
  const auto add = [&](bool keys) {
    for (size_t i = 0; i < layout.streams.size(); ++i) {
      if ((layout.streams[i].rope >= 0) != keys) continue;
      rows.streams.push_back(i);
      rows.offsets.push_back(rows.width);
      rows.width += layout.streams[i].width();
    }
  };
  add(true);
  rows.n_keys = rows.width;
  add(false);
  return rows;
}

Status ReadRows(const KvView& view, const RowLayout& rows, std::span<const size_t> cells,
                math::FloatMatrixView out, unsigned n_threads) {
  KVG_RETURN(CheckShape(rows, out.rows, cells.size(), out.cols));
  const std::vector<int32_t>& table = view.positions[0];
  std::vector<int32_t> positions;
  for (const size_t c : cells) {
    if (c >= table.size()) {
      return Status(Code::kInvalidArgument,
                    "map: cell " + std::to_string(c) + " of " + std::to_string(table.size()));
    }
    positions.push_back(table[c]);
  }
  const Turns turns = MakeTurns(*view.layout, positions, RopeTurn::Out);
  return OverThreads(rows.streams.size(), n_threads, [&](size_t s) {
    const StreamSpec& spec = view.layout->streams[rows.streams[s]];
    const size_t width = spec.width();
    std::vector<float> part;
    for (size_t i = 0; i < cells.size();) {
      // A run of neighbours is read at once.
      size_t n = 1;
      while (i + n < cells.size() && n < kCellsAtOnce && cells[i + n] == cells[i] + n) ++n;
      part.resize(n * width);
      KVG_RETURN(math::ReadCells(view, rows.streams[s], cells[i], n, part));
      if (spec.rope_hadamard > 0) math::Hadamard(part, spec.rope_hadamard);
      for (size_t k = 0; k < n; ++k) {
        const std::span<float> cell(out.row(i + k) + rows.offsets[s], width);
        std::copy_n(part.begin() + static_cast<int64_t>(k * width), width, cell.begin());
        if (spec.rope >= 0) TurnCell(*view.layout, spec, turns, i + k, cell);
      }
      i += n;
    }
    return Status::Ok();
  });
}

Status WriteRows(const MutableKvView& view, const RowLayout& rows, size_t first,
                 math::ConstFloatMatrixView in, unsigned n_threads) {
  const std::vector<int32_t>& table = view.positions[0];
  if (first > table.size() || in.rows > table.size() - first) {
    return Status(Code::kInvalidArgument, "map: cells " + std::to_string(first) + " to " +
                                              std::to_string(first + in.rows) + " of " +
                                              std::to_string(table.size()));
  }
  KVG_RETURN(CheckShape(rows, in.rows, in.rows, in.cols));
  const Turns turns =
      MakeTurns(*view.layout, std::span(table).subspan(first, in.rows), RopeTurn::At);
  return OverThreads(rows.streams.size(), n_threads, [&](size_t s) {
    const StreamSpec& spec = view.layout->streams[rows.streams[s]];
    const size_t width = spec.width();
    std::vector<float> part;
    for (size_t i = 0; i < in.rows; i += kCellsAtOnce) {
      const size_t n = std::min(kCellsAtOnce, in.rows - i);
      part.resize(n * width);
      for (size_t k = 0; k < n; ++k) {
        const std::span<float> cell(part.data() + k * width, width);
        std::copy_n(in.row(i + k) + rows.offsets[s], width, cell.begin());
        if (spec.rope >= 0) TurnCell(*view.layout, spec, turns, i + k, cell);
      }
      if (spec.rope_hadamard > 0) math::Hadamard(part, spec.rope_hadamard);
      KVG_RETURN(math::WriteCells(view, rows.streams[s], first + i, n, part));
    }
    return Status::Ok();
  });
}

}  // namespace kvgraft::transfer
