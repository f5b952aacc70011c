#include "kvgraft/graft/move.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "kvgraft/math/cells.h"

namespace kvgraft::graft {
namespace {

// Cosines and sines of one rope for the moving cells of one table, [cell - first_cell][n_rot].
struct Turns {
  size_t first_cell = 0;
  std::vector<RopeTurn> cells;
};

constexpr size_t kCellsAtOnce = 64;

Status MoveStream(const MutableKvView& view, size_t stream, const RopeSpec& rope,
                  const Turns& turns) {
  const StreamSpec& spec = view.layout->streams[stream];
  const KvView read = math::Readable(view);
  const size_t n = view.n_cells(stream), width = spec.width();
  std::vector<float> cells(std::min(n, kCellsAtOnce) * width);
  for (size_t first = turns.first_cell; first < n; first += kCellsAtOnce) {
    const size_t count = std::min(kCellsAtOnce, n - first);
    const std::span<float> part(cells.data(), count * width);
    KVG_RETURN(math::ReadCells(read, stream, first, count, part));
    if (spec.rope_hadamard > 0) math::Hadamard(part, spec.rope_hadamard);
    for (size_t i = 0; i < count; ++i) {
      for (uint32_t h = 0; h < spec.n_heads; ++h) {
        turns.cells[first - turns.first_cell + i].Apply(
            rope, part.subspan(i * width + h * spec.head_dim, spec.head_dim));
      }
    }
    if (spec.rope_hadamard > 0) math::Hadamard(part, spec.rope_hadamard);
    KVG_RETURN(math::WriteCells(view, stream, first, count, part));
  }
  return Status::Ok();
}

// Runs f(i) for i in 0 .. n-1 over threads; the first error that was seen.
template <typename F>
Status OverThreads(size_t n, uint32_t n_threads, F&& f) {
  std::atomic<size_t> next = 0;
  std::vector<Status> statuses(std::max(1u, n_threads));
  const auto work = [&](uint32_t t) {
    for (size_t i = next++; i < n && statuses[t].ok(); i = next++) statuses[t] = f(i);
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 1; t < statuses.size(); ++t) threads.emplace_back(work, t);
  work(0);
  for (std::thread& t : threads) t.join();
  for (const Status& s : statuses) KVG_RETURN(s);
  return Status::Ok();
}

}  // namespace

Status MoveKeys(MutableKvView* view, int64_t delta, uint32_t n_threads,
                std::span<const size_t> first_cells) {
  if (delta == 0) return Status::Ok();
  if (!first_cells.empty() && first_cells.size() != view->positions.size()) {
    return Status(Code::kInvalidArgument,
                  "moved graft: first cells of " + std::to_string(first_cells.size()) +
                      " tables, the state has " + std::to_string(view->positions.size()));
  }
  const auto first_of = [&](size_t table) { return first_cells.empty() ? 0 : first_cells[table]; };
  for (size_t t = 0; t < view->positions.size(); ++t) {
    const std::vector<int32_t>& table = view->positions[t];
    if (first_of(t) >= table.size()) continue;
    const int64_t first = table[first_of(t)] + delta, last = table.back() + delta;
    if (first < 0 || last > std::numeric_limits<int32_t>::max()) {
      return Status(Code::kInvalidArgument, "moved graft: positions " + std::to_string(first) +
                                                " to " + std::to_string(last) +
                                                "; expected 0 or more");
    }
  }
  const KvLayout& layout = *view->layout;
  // [table * n_ropes + rope]; only those that some stream has.
  std::vector<Turns> turns(view->positions.size() * layout.ropes.size());
  std::vector<size_t> moved;
  for (size_t i = 0; i < layout.streams.size(); ++i) {
    const StreamSpec& spec = layout.streams[i];
    if (spec.rope < 0) continue;
    moved.push_back(i);
    Turns& t = turns[spec.table * layout.ropes.size() + static_cast<size_t>(spec.rope)];
    if (!t.cells.empty()) continue;
    const std::vector<int32_t>& table = view->positions[spec.table];
    t.first_cell = std::min(first_of(spec.table), table.size());
    for (size_t c = t.first_cell; c < table.size(); ++c) {
      t.cells.push_back(RopeTurn::Between(layout.ropes[static_cast<size_t>(spec.rope)], table[c],
                                          static_cast<int32_t>(table[c] + delta)));
    }
  }
  KVG_RETURN(OverThreads(moved.size(), n_threads, [&](size_t i) {
    const StreamSpec& spec = layout.streams[moved[i]];
    return MoveStream(*view, moved[i], layout.ropes[static_cast<size_t>(spec.rope)],
                      turns[spec.table * layout.ropes.size() + static_cast<size_t>(spec.rope)]);
  }));
  for (size_t t = 0; t < view->positions.size(); ++t) {
    std::vector<int32_t>& table = view->positions[t];
    for (size_t c = std::min(first_of(t), table.size()); c < table.size(); ++c) {
      table[c] = static_cast<int32_t>(table[c] + delta);
    }
  }
  return Status::Ok();
}

Status CopyCells(const KvView& from, uint32_t table, size_t from_first, size_t count,
                 const MutableKvView& to, size_t to_first) {
  if (*from.layout != *to.layout) {
    return Status(Code::kMismatch, "planes: states of different layouts cannot be put together");
  }
  for (size_t i = 0; i < from.layout->streams.size(); ++i) {
    const StreamSpec& spec = from.layout->streams[i];
    if (spec.table != table) continue;
    const size_t n_from = from.n_cells(i), n_to = to.n_cells(i);
    if (from_first > n_from || count > n_from - from_first || to_first > n_to ||
        count > n_to - to_first) {
      return Status(Code::kInvalidArgument,
                    "planes: " + std::to_string(count) + " cells from " +
                        std::to_string(from_first) + " of " + std::to_string(n_from) + " to " +
                        std::to_string(to_first) + " of " + std::to_string(n_to));
    }
    if (count == 0) continue;
    const auto& a = from.streams[i];
    const auto& b = to.streams[i];
    KVG_ASSIGN(const BlockSize block, BlockOf(spec.type));
    if (spec.order == StreamOrder::kRows) {
      const size_t bytes = size_t{spec.width()} / block.elements * block.bytes;
      for (size_t c = 0; c < count; ++c) {
        std::memcpy(b.data.data() + (to_first + c) * b.stride,
                    a.data.data() + (from_first + c) * a.stride, bytes);
      }
    } else {
      for (size_t e = 0; e < spec.width(); ++e) {
        std::memcpy(b.data.data() + (e * n_to + to_first) * block.bytes,
                    a.data.data() + (e * n_from + from_first) * block.bytes, count * block.bytes);
      }
    }
  }
  return Status::Ok();
}

}  // namespace kvgraft::graft
