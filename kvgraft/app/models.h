// Models by short name. `models.lock` (in the project's root, or share/kvgraft when installed)
// lists what `kvgraft models pull` can fetch; what was fetched lies as <models folder>/<name>.gguf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvgraft/app/config.h"
#include "kvgraft/core/status.h"

namespace kvgraft::app {

struct ModelEntry {
  std::string name;
  std::string path;  // where it lies or would lie
  bool present = false;
  uint64_t file_bytes = 0;  // 0: not here
  bool known = false;       // models.lock lists it
  std::string title, licence;
};

// True for "toy" and "toy:...": the built-in test model, see ParseToy.
bool IsToyModel(const std::string& model);

// `model` as -m has it. A text with a slash or ending in .gguf is a path; anything else is a short
// name. kNotFound says what to do; kInvalidArgument when empty.
Result<std::string> ResolveModel(const Config& config, const std::string& model);

// What models.lock lists and what lies in the models folder, by name.
Result<std::vector<ModelEntry>> ListModels(const Config& config);

// Fetches `name` with models.py, which shows its own progress, questions and errors: a failure that
// it has already reported is a Status with an empty message. Returns the path.
Result<std::string> PullModel(const Config& config, const std::string& name, bool accept_licence);

// A file that belongs to the program: beside the project's root or under share/kvgraft. "" if none.
std::string FindShared(const Config& config, const std::string& name);

}  // namespace kvgraft::app
