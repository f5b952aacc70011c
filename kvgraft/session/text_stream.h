// From the bytes of tokens to text that may be shown: complete UTF-8 characters, and nothing that a
// stop string would take back.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvgraft::session {

// Splits a byte stream into complete UTF-8 characters; invalid bytes become U+FFFD at Flush or as
// soon as they cannot be completed (one for each maximal prefix of a character, as in the Unicode
// Standard, section 3.9, table 3-8). The result does not depend on how the stream is cut.
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);
  std::string Flush();

 private:
  std::string pending_;
};

// Utf8Stream that ends before the first of some stop strings, wherever the stream is cut. Of
// several the one that is complete first ends it; of those complete at the same time, the one that
// begins first. Stop strings are compared as bytes.
class StopStream {
 public:
  explicit StopStream(std::span<const std::string> stops) : stops_(stops.begin(), stops.end()) {}

  // Appends bytes and returns the text that is certain now. Not after stopped().
  std::string Push(std::string_view bytes);
  // What was held back, when the stream ends without a stop string; "" after stopped().
  std::string Flush();

  bool stopped() const { return stopped_; }
  size_t pushed_bytes() const { return pushed_bytes_; }
  // Offset in the stream at which the stop string begins, once stopped().
  size_t stop_offset() const { return stop_offset_; }

 private:
  size_t HeldBytes() const;

  std::vector<std::string> stops_;
  Utf8Stream utf8_;
  std::string held_;  // the end of the stream, which may be the beginning of a stop string
  size_t pushed_bytes_ = 0;
  size_t stop_offset_ = 0;
  bool stopped_ = false;
};

}  // namespace kvgraft::session
