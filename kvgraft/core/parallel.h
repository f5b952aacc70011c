// Work shared out over threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft {

// Runs f(i) for i in 0 .. n-1, each once, over at most n_threads threads, the caller's among them;
// f returns a Status. The first error of the first thread that met one; others may have run on.
template <typename F>
Status OverThreads(size_t n, unsigned n_threads, F&& f) {
  std::atomic<size_t> next = 0;
  std::vector<Status> statuses(std::clamp<size_t>(n, 1, std::max(1u, n_threads)));
  const auto work = [&](size_t t) {
    for (size_t i = next++; i < n && statuses[t].ok(); i = next++) statuses[t] = f(i);
  };
  std::vector<std::thread> threads;
  try {
    for (size_t t = 1; t < statuses.size(); ++t) threads.emplace_back(work, t);
  } catch (const std::system_error&) {
    // No more threads to be had: the ones there are do it.
  }
  work(0);
  for (std::thread& t : threads) t.join();
  for (const Status& s : statuses) KVG_RETURN(s);
  return Status::Ok();
}

}  // namespace kvgraft
