// libllama reports the reason of a failure only through its process-wide log; this keeps the first
// error line, so that a Status can carry it, and passes lines on to a sink.
#include <mutex>

#include "kvgraft/engine_llama/internal.h"

namespace kvgraft::engine_llama {
namespace {

struct LogState {
  std::mutex mutex;
  std::string first;
  std::string pending;  // a line may come in several pieces
  ggml_log_level level = GGML_LOG_LEVEL_NONE;
  std::function<void(const std::string&)> sink;
};

LogState& State() {
  static LogState state;
  return state;
}

void OnLog(ggml_log_level level, const char* text, void*) {
  LogState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (level != GGML_LOG_LEVEL_CONT) state.level = level;
  if (state.level < GGML_LOG_LEVEL_WARN) return;
  state.pending += text;
  size_t end;
  while ((end = state.pending.find('\n')) != std::string::npos) {
    const std::string line = state.pending.substr(0, end);
    state.pending.erase(0, end + 1);
    // The first is the cause, later ones say what failed because of it.
    if (state.level == GGML_LOG_LEVEL_ERROR && state.first.empty()) state.first = line;
    if (state.sink) state.sink(line);
  }
}

}  // namespace

void InstallLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(OnLog, nullptr);
    llama_backend_init();
  });
}

std::string TakeErrorLog() {
  LogState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  std::string first = std::move(state.first);
  state.first.clear();
  return first;
}

void SetLogSink(std::function<void(const std::string& line)> sink) {
  InstallLog();
  LogState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.sink = std::move(sink);
}

}  // namespace kvgraft::engine_llama
