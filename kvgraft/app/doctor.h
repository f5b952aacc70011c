// `doctor`: engine, processor, store and, with a model, the self-test, as one report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvgraft/app/runtime.h"

namespace kvgraft::app {

struct Check {
  std::string name;  // "store opens"
  bool ok = false;
  std::string detail;  // what was found, or what to do
};

// Streams of a state that differ by their layer only.
struct StreamGroup {
  std::string kind, type;  // "key", "f16"
  uint32_t layers = 0, heads = 0, head_dim = 0;
  bool window = false;    // holds the sliding window only
  bool position = false;  // carries RoPE: turned when a graft stands elsewhere
};

struct DoctorReport {
  EngineInfo engine;
  uint32_t threads = 0;
  std::string store_root, cache_dir, models_dir;
  uint64_t store_entries = 0, store_bytes = 0, disk_free_bytes = 0;
  uint64_t budget_bytes = 0, free_floor_bytes = 0;
  std::vector<std::string> store_warnings;
  std::vector<Check> checks;
  // With a model:
  std::optional<engine::ModelInfo> model;
  std::optional<session::ExactProfile> profile;
  std::string profile_path;
  std::vector<StreamGroup> planes;          // what the state consists of, as arrays
  std::string planes_refused;               // why it cannot be had as arrays; "": it can
  std::string keeps_position;               // why it cannot be moved and composed; "": it can
  std::vector<session::DriftRecord> drift;  // calibrations of the drift gate that are kept
  bool ok() const;
};

// A check that fails is part of the report, not an error. `exhaustive`: run the self-test over
// every configuration, instead of showing the kept result (or running it if there is none).
Result<DoctorReport> RunDoctorReport(Runtime& runtime, bool exhaustive);

}  // namespace kvgraft::app
