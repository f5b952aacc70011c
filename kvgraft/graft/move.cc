#include "kvgraft/graft/move.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "kvgraft/core/parallel.h"
#include "kvgraft/math/cells.h"

namespace kvgraft::graft {
namespace {

// Cells that one thread turns at a time, through all streams: their angles are computed once and
// stay in its cache.
constexpr size_t kCellsAtOnce = 64;

bool Turns(const StreamSpec& stream, const Placement& p) { return stream.rope >= 0 && p.turn != 0; }

Status CheckTurn(const std::vector<int32_t>& table, size_t first, size_t count, int64_t turn) {
  if (count == 0 || turn == 0) return Status::Ok();
  const int64_t begin = table[first] + turn, last = table[first + count - 1] + turn;
  if (begin < 0 || last > std::numeric_limits<int32_t>::max()) {
    return Status(Code::kInvalidArgument, "moved graft: positions " + std::to_string(begin) +
                                              " to " + std::to_string(last) +
                                              "; expected 0 or more");
  }
  return Status::Ok();
}

Status CheckPlacement(const KvView& from, const Placement& p, const MutableKvView& to) {
  if (p.table >= from.positions.size()) {
    return Status(Code::kInvalidArgument, "planes: table " + std::to_string(p.table) + " of " +
                                              std::to_string(from.positions.size()));
  }
  const size_t n_from = from.positions[p.table].size(), n_to = to.positions[p.table].size();
  if (p.first > n_from || p.count > n_from - p.first || p.to_first > n_to ||
      p.count > n_to - p.to_first) {
    return Status(Code::kInvalidArgument,
                  "planes: " + std::to_string(p.count) + " cells from " + std::to_string(p.first) +
                      " of " + std::to_string(n_from) + " to " + std::to_string(p.to_first) +
                      " of " + std::to_string(n_to));
  }
  return CheckTurn(from.positions[p.table], p.first, p.count, p.turn);
}

// Carries out a part of a placement: at most kCellsAtOnce cells of all streams that turn, or all
// cells of one that does not.
class PartPlacer {
 public:
  PartPlacer(const KvView& from, const MutableKvView& to, const Placement& part)
      : from_(from), to_(to), part_(part), turns_(from.layout->ropes.size()) {}

  Status TurnAll() {
    const std::vector<StreamSpec>& streams = from_.layout->streams;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].table == part_.table && Turns(streams[i], part_)) KVG_RETURN(Turn(i));
    }
    return Status::Ok();
  }

  Status Copy(size_t stream) const {
    const StreamSpec& spec = from_.layout->streams[stream];
    const auto& a = from_.streams[stream];
    const auto& b = to_.streams[stream];
    KVG_ASSIGN(const BlockSize block, BlockOf(spec.type));
    const size_t n = part_.count;
    if (spec.order == StreamOrder::kColumns) {
      const size_t n_from = from_.n_cells(stream), n_to = to_.n_cells(stream);
      for (size_t e = 0; e < spec.width(); ++e) {
        std::memcpy(b.data.data() + (e * n_to + part_.to_first) * block.bytes,
                    a.data.data() + (e * n_from + part_.first) * block.bytes, n * block.bytes);
      }
      return Status::Ok();
    }
    const size_t bytes = size_t{spec.width()} / block.elements * block.bytes;
    const bool dense = a.stride == bytes && b.stride == bytes;
    const size_t at_once = dense ? n * bytes : bytes;
    for (size_t c = 0; c < (dense ? 1 : n); ++c) {
      std::memcpy(b.data.data() + (part_.to_first + c) * b.stride,
                  a.data.data() + (part_.first + c) * a.stride, at_once);
    }
    return Status::Ok();
  }

 private:
  const std::vector<RopeTurn>& TurnsOf(int32_t index) {
    std::vector<RopeTurn>& turns = turns_[static_cast<size_t>(index)];
    if (turns.empty()) {
      turns.reserve(part_.count);
      const RopeSpec& rope = from_.layout->ropes[static_cast<size_t>(index)];
      for (size_t i = 0; i < part_.count; ++i) {
        const int32_t pos = from_.positions[part_.table][part_.first + i];
        turns.push_back(RopeTurn::Between(rope, pos, static_cast<int32_t>(pos + part_.turn)));
      }
    }
    return turns;
  }

  Status Turn(size_t stream) {
    const StreamSpec& spec = from_.layout->streams[stream];
    const RopeSpec& rope = from_.layout->ropes[static_cast<size_t>(spec.rope)];
    const std::vector<RopeTurn>& turns = TurnsOf(spec.rope);
    const size_t width = spec.width();
    cells_.resize(part_.count * width);
    const std::span<float> cells(cells_);
    KVG_RETURN(math::ReadCells(from_, stream, part_.first, part_.count, cells));
    if (spec.rope_hadamard > 0) math::Hadamard(cells, spec.rope_hadamard);
    for (size_t i = 0; i < part_.count; ++i) {
      for (uint32_t h = 0; h < spec.n_heads; ++h) {
        turns[i].Apply(rope, cells.subspan(i * width + h * spec.head_dim, spec.head_dim));
      }
    }
    if (spec.rope_hadamard > 0) math::Hadamard(cells, spec.rope_hadamard);
    return math::WriteCells(to_, stream, part_.to_first, part_.count, cells);
  }

  const KvView& from_;
  const MutableKvView& to_;
  const Placement& part_;
  std::vector<std::vector<RopeTurn>> turns_;  // [rope][cell], made on first use
  std::vector<float> cells_;
};

Status Place(const KvView& from, std::span<const Placement> placements, const MutableKvView& to,
             uint32_t n_threads) {
  const std::vector<StreamSpec>& streams = from.layout->streams;
  struct Part {
    Placement cells;
    std::optional<size_t> copied;  // the stream; else all that turn
  };
  std::vector<Part> parts;
  for (const Placement& p : placements) {
    if (p.count == 0) continue;
    for (size_t done = 0; p.turn != 0 && done < p.count; done += kCellsAtOnce) {
      const size_t count = std::min(kCellsAtOnce, p.count - done);
      parts.push_back({{p.table, p.first + done, count, p.to_first + done, p.turn}, {}});
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      const bool in_place = from.streams[i].data.data() == to.streams[i].data.data();
      if (streams[i].table == p.table && !Turns(streams[i], p) && !in_place) {
        parts.push_back({p, i});
      }
    }
  }
  return OverThreads(parts.size(), n_threads, [&](size_t i) {
    PartPlacer placer(from, to, parts[i].cells);
    return parts[i].copied ? placer.Copy(*parts[i].copied) : placer.TurnAll();
  });
}

}  // namespace

Status CheckMovable(const KvLayout& layout) {
  if (!layout.recurrent()) return Status::Ok();
  return Status(Code::kUnsupported,
                "planes: the state is recurrent, or a part of it is: it is valid at its own "
                "position only, and nothing can be cut out of it");
}

Status PlaceCells(const KvView& from, std::span<const Placement> placements,
                  const MutableKvView& to, uint32_t n_threads) {
  if (*from.layout != *to.layout) {
    return Status(Code::kMismatch, "planes: states of different layouts cannot be put together");
  }
  KVG_RETURN(CheckMovable(*from.layout));
  for (const Placement& p : placements) KVG_RETURN(CheckPlacement(from, p, to));
  return Place(from, placements, to, n_threads);
}

Status MoveKeys(MutableKvView* view, int64_t delta, uint32_t n_threads) {
  if (delta == 0) return Status::Ok();
  KVG_RETURN(CheckMovable(*view->layout));
  std::vector<Placement> all;
  for (uint32_t t = 0; t < view->positions.size(); ++t) {
    const size_t n = view->positions[t].size();
    all.push_back({t, 0, n, 0, delta});
    KVG_RETURN(CheckTurn(view->positions[t], 0, n, delta));
  }
  KVG_RETURN(Place(math::Readable(*view), all, *view, n_threads));
  for (std::vector<int32_t>& table : view->positions) {
    for (int32_t& pos : table) pos = static_cast<int32_t>(pos + delta);
  }
  return Status::Ok();
}

}  // namespace kvgraft::graft
