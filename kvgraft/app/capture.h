// `capture`: a source's state computed by the padding rule and stored, going on from the longest
// prefix that the store already has.
#pragma once

#include <cstdint>
#include <string>

#include "kvgraft/app/document.h"
#include "kvgraft/app/runtime.h"
#include "kvgraft/store/store.h"

namespace kvgraft::app {

struct CaptureOptions {
  Source source;
  std::string name;  // empty: none
  bool pin = false;
  bool probe = true;
  bool resume = true;  // false: compute all of it, whatever the store has
};

struct CaptureReport {
  store::Entry entry;
  std::string name;  // as given
  uint64_t tokens = 0;
  uint64_t tokens_reused = 0;  // from a stored prefix
  uint64_t tokens_computed = 0;
  std::string resumed_from;        // id of that prefix
  bool already_stored = false;     // nothing was computed or written
  bool verified_schedule = false;  // the self-test holds: exact
  double graft_ms = 0, prefill_ms = 0, image_ms = 0, probe_ms = 0, store_ms = 0, total_ms = 0;
};

// When interrupted after 64 tokens or more, stores what was computed as an artifact without a name,
// from which the next capture of the same text goes on, and returns kCancelled saying so.
Result<CaptureReport> RunCapture(Runtime& runtime, const CaptureOptions& options);

// Milliseconds of a steady clock since `start_ms`, which 0 reads.
double NowMs();

}  // namespace kvgraft::app
