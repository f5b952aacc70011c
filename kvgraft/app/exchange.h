// `export` and `import` of states for Python: safetensors files (exchange/planes_file.h).
#pragma once

#include <cstdint>
#include <string>

#include "kvgraft/app/runtime.h"
#include "kvgraft/store/store.h"

namespace kvgraft::app {

struct PlanesExported {
  store::Entry entry;
  uint64_t bytes = 0;    // of the file
  uint64_t tensors = 0;  // in it
};
// Writes an artifact's state to `path`, atomically; refuses to overwrite unless `force`
// (kInvalidArgument). An artifact that does not verify goes to quarantine.
Result<PlanesExported> RunExportPlanes(Runtime& runtime, const std::string& ref,
                                       const std::string& path, bool force);

struct PlanesImported {
  store::Entry entry;
  bool identical = false;  // bit for bit what was exported
  std::string difference;  // else: what is not
};
// Puts such a file into the store as an artifact of the runtime's model. `name` empty: the file's
// suggestion, where that takes no name away.
Result<PlanesImported> RunImportPlanes(Runtime& runtime, const std::string& path,
                                       const std::string& name);

// Whether a file is a safetensors file, by its first bytes. False for what cannot be read: whoever
// reads it next says why.
bool IsSafetensorsFile(const std::string& path);

}  // namespace kvgraft::app
