// Runs another program and waits for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft::app {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal when a signal ended it
  std::string output;  // standard output
};

struct ProcessOptions {
  std::optional<std::string_view> input;  // nullopt: standard input is inherited
  std::vector<std::pair<std::string, std::string>> environment;  // set besides the inherited one
};

// argv[0] is searched in PATH. Standard output is captured, standard error inherited. kIo when the
// program cannot be started.
Result<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                 const ProcessOptions& options = {});

}  // namespace kvgraft::app
