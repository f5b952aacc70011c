#include "kvgraft/cli/console.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kvgraft/app/config.h"

namespace kvgraft::cli {
namespace {

// Seconds between plain lines: at first, and then a share of the time that has passed, so that an
// hour gives tens of lines.
constexpr double kPlainInterval = 2.0, kPlainShare = 0.1;
constexpr double kBarInterval = 0.1;
constexpr int kBarCells = 24;

// Written by the signal handler, which has no other way.
volatile sig_atomic_t g_interrupted = 0;
volatile time_t g_interrupted_at = 0;

// A second signal ends the process at once; but timeout(1) sends the first one twice.
void OnSignal(int) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (g_interrupted == 0) {
    g_interrupted = 1;
    g_interrupted_at = now.tv_sec;
  } else if (now.tv_sec - g_interrupted_at >= 2) {
    _exit(130);
  }
}

double Now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string OneLine(const std::string& text) {
  std::string line = text;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read of the terminal must come back.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted != 0; }
void ClearInterrupt() { g_interrupted = 0; }

Console::Console() {
  const bool no_colour = app::ProcessEnvironment()("NO_COLOR").has_value();
  const bool dumb = app::ProcessEnvironment()("TERM").value_or("dumb") == "dumb";
  out_terminal_ = isatty(STDOUT_FILENO) != 0;
  err_terminal_ = isatty(STDERR_FILENO) != 0 && !dumb;
  out_colour_ = out_terminal_ && !no_colour && !dumb;
  err_colour_ = err_terminal_ && !no_colour;
}

void Console::Print(std::string_view text) {
  if (json) return;
  if (bar_open_) EndProgress();
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (out_terminal_) std::fflush(stdout);
}

void Console::PrintJson(const Json& object) {
  if (bar_open_) EndProgress();
  const std::string line = object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
}

void Console::Note(const std::string& line) {
  if (quiet) return;
  EndProgress();
  std::fprintf(stderr, "%s\n", OneLine(line).c_str());
}

void Console::PrintError(const Status& status) {
  EndProgress();
  if (status.message().empty()) return;
  const std::string line = OneLine(status.message());
  std::fprintf(stderr, err_colour_ ? "\033[1;31mkvgraft:\033[0m %s\n" : "kvgraft: %s\n",
               line.c_str());
}

void Console::DrawBar(double now, size_t done, size_t total) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  const int filled = std::clamp(static_cast<int>(share * kBarCells), 0, kBarCells);
  std::string line = stage_ + " [" + std::string(filled, '#') +
                     std::string(kBarCells - filled, '.') + "] " +
                     std::to_string(static_cast<int>(share * 100)) + " %";
  const double elapsed = now - stage_start_;
  const auto gained = static_cast<double>(done - std::min(done, first_done_));
  if (elapsed > 0.2 && gained > 0) {
    const double rate = gained / elapsed;
    line += "  " + FormatCount(done) + "/" + FormatCount(total) + "  " +
            FormatCount(static_cast<uint64_t>(rate)) + "/s";
    if (done < total) {
      line += "  " + FormatMs(1000 * static_cast<double>(total - done) / rate) + " left";
    }
  }
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  bar_open_ = true;
}

bool Console::ShowProgress(std::string_view stage, size_t done, size_t total) {
  if (quiet || total == 0) return !Interrupted();
  const double now = Now();
  if (stage != stage_) {
    EndProgress();
    stage_ = std::string(stage);
    stage_start_ = last_shown_ = now;
    first_done_ = last_done_ = done;
  }
  if (err_terminal_) {
    // The first tenths of a second stay silent: most stages are over by then.
    if (now - last_shown_ >= (bar_open_ ? kBarInterval : 2 * kBarInterval)) {
      DrawBar(now, done, total);
      last_shown_ = now;
    }
  } else if (now - last_shown_ >= std::max(kPlainInterval, kPlainShare * (now - stage_start_)) &&
             done != last_done_ && done < total) {
    std::fprintf(stderr, "%s: %s of %s\n", stage_.c_str(), FormatCount(done).c_str(),
                 FormatCount(total).c_str());
    last_shown_ = now;
    last_done_ = done;
  }
  if (done >= total) EndProgress();
  return !Interrupted();
}

void Console::EndProgress() {
  if (bar_open_) {
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
  }
  bar_open_ = false;
  stage_.clear();
}

app::Hooks Console::Hooks() {
  app::Hooks hooks;
  hooks.progress = [this](std::string_view stage, size_t done, size_t total) {
    return ShowProgress(stage, done, total);
  };
  hooks.note = [this](const std::string& line) { Note(line); };
  return hooks;
}

bool Console::Finish() {
  EndProgress();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

std::string Console::Bold(std::string_view text) const {
  return out_colour_ ? "\033[1m" + std::string(text) + "\033[0m" : std::string(text);
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows, std::string_view right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - DisplayWidth(row[i]), ' ');
      const bool to_right = i < right.size() && right[i] == 'r';
      line += (i > 0 ? "  " : "") + (to_right ? pad + row[i] : row[i] + pad);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string FormatMs(double ms) {
  if (ms < 10) return Fixed(ms, 1) + " ms";
  if (ms < 1000) return Fixed(ms, 0) + " ms";
  if (ms < 60'000) return Fixed(ms / 1000, 1) + " s";
  const auto seconds = static_cast<uint64_t>(ms / 1000);
  return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
}

std::string FormatAge(int64_t then_unix, int64_t now_unix) {
  const int64_t s = std::max<int64_t>(0, now_unix - then_unix);
  if (s < 60) return std::to_string(s) + " s";
  if (s < 3600) return std::to_string(s / 60) + " min";
  if (s < 86400) return std::to_string(s / 3600) + " h";
  return std::to_string(s / 86400) + (s < 2 * 86400 ? " day" : " days");
}

std::string FormatCount(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string ShortId(const std::string& id) { return id.substr(0, 12); }

std::string Excerpt(std::string_view text, size_t n_chars) {
  std::string out;
  size_t chars = 0;
  for (char c : text) {
    const bool starts = (c & 0xC0) != 0x80;
    if (starts && chars++ == n_chars) return out + "...";
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return out;
}

}  // namespace kvgraft::cli
