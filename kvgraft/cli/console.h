// What the program says and where: results on standard output, everything else on standard error.
// With --json standard output carries exactly one line, the JSON object. Colour and cursor moves go
// to terminals only, and not where NO_COLOR is set.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/app/hooks.h"
#include "kvgraft/core/status.h"

namespace kvgraft::cli {

using Json = nlohmann::ordered_json;

// Set by SIGINT and SIGTERM; a second signal, some seconds later, ends the process at once with
// 130.
void InstallInterruptHandler();
bool Interrupted();
void ClearInterrupt();

class Console {
 public:
  Console();

  bool json = false;   // --json
  bool quiet = false;  // -q: no progress, no notes

  bool out_is_terminal() const { return out_terminal_; }
  bool err_is_terminal() const { return err_terminal_; }

  // Results for people: nothing with --json.
  void Print(std::string_view text);
  void PrintLine(std::string_view line) { Print(std::string(line) + "\n"); }
  // The object that --json prints; printed once, at the end.
  void PrintJson(const Json& object);
  // A remark on standard error, "kvgraft: ..." left off.
  void Note(const std::string& line);
  // The one line of a failure. An empty message has been reported already.
  void PrintError(const Status& status);

  // A bar on a terminal; elsewhere a line every 2 s, and only if it takes longer than that.
  // Returns false once the user has interrupted.
  bool ShowProgress(std::string_view stage, size_t done, size_t total);
  void EndProgress();

  app::Hooks Hooks();
  // Flushes; false when standard output could not take everything (full disk, closed pipe).
  bool Finish();

  std::string Bold(std::string_view text) const;  // for standard output

 private:
  void DrawBar(double now, size_t done, size_t total);
  bool out_terminal_ = false, err_terminal_ = false, out_colour_ = false, err_colour_ = false;
  std::string stage_;
  double stage_start_ = 0, last_shown_ = 0;
  size_t first_done_ = 0, last_done_ = 0;
  bool bar_open_ = false;
};

// Columns padded to their widest cell; `right` has an 'r' for each column that aligns right.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows, std::string_view right);

std::string FormatMs(double ms);                             // "34 ms", "7.4 s", "2 min 5 s"
std::string FormatAge(int64_t then_unix, int64_t now_unix);  // "3 min", "2 h", "5 days"
std::string FormatCount(uint64_t n);                         // "1,536"
std::string ShortId(const std::string& id);                  // the first 12 digits
// One line for a table or a message: control characters become spaces, cut to n_chars.
std::string Excerpt(std::string_view text, size_t n_chars);

}  // namespace kvgraft::cli
