#include "kvgraft/store/gc.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "kvgraft/core/bytes.h"

namespace kvgraft::store {
namespace {

struct Totals {
  uint64_t used = 0, pinned = 0;
};

Totals Sum(const std::vector<Candidate>& candidates) {
  Totals totals;
  for (const Candidate& c : candidates) {
    totals.used += c.object.bytes;
    if (c.pinned) totals.pinned += c.object.bytes;
  }
  return totals;
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

uint64_t Excess(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// Least recently used first until `bytes` are free; all unpinned ones when they do not suffice.
std::vector<ObjectFile> Take(const std::vector<Candidate>& candidates, uint64_t bytes) {
  std::vector<const Candidate*> order;
  for (const Candidate& c : candidates) {
    if (!c.pinned) order.push_back(&c);
  }
  std::sort(order.begin(), order.end(), [](const Candidate* a, const Candidate* b) {
    return std::tuple(!a->first, a->object.used_ns, a->object.id) <
           std::tuple(!b->first, b->object.used_ns, b->object.id);
  });
  std::vector<ObjectFile> taken;
  uint64_t freed = 0;
  for (const Candidate* c : order) {
    if (freed >= bytes) break;
    freed = SaturatingAdd(freed, c->object.bytes);
    taken.push_back(c->object);
  }
  return taken;
}

}  // namespace

Result<std::vector<ObjectFile>> PlanRoom(const std::vector<Candidate>& candidates,
                                         const Limits& limits, uint64_t free_bytes,
                                         uint64_t incoming) {
  const Totals totals = Sum(candidates);
  const uint64_t over_budget =
      limits.budget_bytes == 0 ? 0
                               : Excess(SaturatingAdd(totals.used, incoming), limits.budget_bytes);
  const uint64_t over_floor = Excess(SaturatingAdd(incoming, limits.free_floor_bytes), free_bytes);
  const uint64_t evictable = totals.used - totals.pinned;
  const bool too_large = limits.budget_bytes != 0 && incoming > limits.budget_bytes;
  if (too_large || over_budget > evictable || over_floor > evictable) {
    std::string message = "store: no room for " + FormatBytes(incoming) + ": ";
    if (too_large) {
      message += "larger than the whole budget";
    } else if (over_budget > evictable) {
      message += "the budget is taken by pinned artifacts";
    } else {
      message += "too little space on the disk";
    }
    message += " (budget " +
               (limits.budget_bytes == 0 ? std::string("none") : FormatBytes(limits.budget_bytes)) +
               ", used " + FormatBytes(totals.used) + ", pinned " + FormatBytes(totals.pinned) +
               ", free on disk " + FormatBytes(free_bytes) + ", to stay free " +
               FormatBytes(limits.free_floor_bytes) +
               "); nothing was evicted; remove or unpin artifacts, or raise the budget";
    return Status(Code::kExhausted, message);
  }
  return Take(candidates, std::max(over_budget, over_floor));
}

std::vector<ObjectFile> PlanStart(const std::vector<Candidate>& candidates, const Limits& limits,
                                  uint64_t free_bytes) {
  const Totals totals = Sum(candidates);
  const uint64_t over_budget =
      limits.budget_bytes == 0 ? 0 : Excess(totals.used, limits.budget_bytes);
  uint64_t over_floor = Excess(limits.free_floor_bytes, free_bytes);
  if (over_floor > totals.used - totals.pinned) over_floor = 0;
  return Take(candidates, std::max(over_budget, over_floor));
}

}  // namespace kvgraft::store
