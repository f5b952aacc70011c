#include "kvgraft/session/text_stream.h"

#include <algorithm>
#include <cstdint>

namespace kvgraft::session {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

struct Character {
  size_t bytes;  // to take: a character, or the longest beginning of one
  bool valid;
  bool complete;  // false: more bytes could make it valid
};

// The next character of non-empty `s`, by table 3-7 of the Unicode Standard.
Character Next(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false, true};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Over-long forms, surrogates and values above U+10FFFF show in the second byte.
  uint8_t low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (size_t i = 1; i < length; ++i) {
    if (i == s.size()) return {i, false, false};
    if (byte(i) < low || byte(i) > high) return {i, false, true};
    low = 0x80;
    high = 0xbf;
  }
  return {length, true, true};
}

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Character c = Next(rest);
    if (!c.complete) break;
    out += c.valid ? rest.substr(0, c.bytes) : kReplacement;
    rest.remove_prefix(c.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::Flush() {
  // What is pending is one unfinished character.
  const bool any = !pending_.empty();
  pending_.clear();
  return any ? std::string(kReplacement) : std::string();
}

size_t StopStream::HeldBytes() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > held; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) held = n;
    }
  }
  return held;
}

std::string StopStream::Push(std::string_view bytes) {
  // Byte by byte where a stop string could end, so that the cuts of the stream do not decide which
  // of two stop strings counts.
  std::string out;
  for (size_t i = 0; i < bytes.size() && !stopped_; ++i) {
    held_ += bytes[i];
    ++pushed_bytes_;
    size_t longest = 0;
    for (const std::string& stop : stops_) {
      if (held_.size() >= stop.size() && stop.size() > longest &&
          held_.compare(held_.size() - stop.size(), stop.size(), stop) == 0)
        longest = stop.size();
    }
    if (longest > 0) {
      stopped_ = true;
      stop_offset_ = pushed_bytes_ - longest;
      out += utf8_.Push(std::string_view(held_).substr(0, held_.size() - longest));
      out += utf8_.Flush();
      held_.clear();
      return out;
    }
    const size_t sure = held_.size() - HeldBytes();
    out += utf8_.Push(std::string_view(held_).substr(0, sure));
    held_.erase(0, sure);
  }
  return out;
}

std::string StopStream::Flush() {
  std::string out = utf8_.Push(held_);
  out += utf8_.Flush();
  held_.clear();
  return out;
}

}  // namespace kvgraft::session
