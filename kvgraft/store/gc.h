// Which artifacts go when room is needed: a pure decision, apart from the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvgraft/core/status.h"
#include "kvgraft/store/folder.h"

namespace kvgraft::store {

struct Limits {
  uint64_t budget_bytes = 0;      // all objects together; 0: none
  uint64_t free_floor_bytes = 0;  // must stay free on the disk
};

struct Candidate {
  ObjectFile object;
  bool pinned = false;
  bool first = false;  // goes before all others: its model is gone
};

// The entries to evict, in order, so that `incoming` bytes can be written within the limits.
// kExhausted when that cannot be done, with what is needed, allowed, pinned and free; then nothing
// is to be evicted. An entry larger than the whole budget never evicts anything.
Result<std::vector<ObjectFile>> PlanRoom(const std::vector<Candidate>& candidates,
                                         const Limits& limits, uint64_t free_bytes,
                                         uint64_t incoming);

// The entries to evict at start: down to the budget, or as near to it as pins allow; down to the
// free-space floor only when evicting can reach it, since else the space is taken by others.
std::vector<ObjectFile> PlanStart(const std::vector<Candidate>& candidates, const Limits& limits,
                                  uint64_t free_bytes);

}  // namespace kvgraft::store
