// How the commands talk to whoever runs them: progress, which may be answered with "stop", and
// notes for people. The commands themselves print nothing.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kvgraft/engine/engine.h"

namespace kvgraft::app {

struct Hooks {
  // `stage` is a verb for people ("prefill"); returns false to interrupt.
  std::function<bool(std::string_view stage, size_t done, size_t total)> progress;
  // One line without a newline, for people.
  std::function<void(const std::string& line)> note;

  void Note(const std::string& line) const {
    if (note) note(line);
  }
  engine::Progress Stage(std::string stage) const {
    if (!progress) return {};
    return [report = progress, name = std::move(stage)](size_t done, size_t total) {
      return report(name, done, total);
    };
  }
};

}  // namespace kvgraft::app
