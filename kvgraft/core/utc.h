// The time now as files keep it: "2026-11-30T16:24:09Z".
#pragma once

#include <ctime>
#include <string>

namespace kvgraft {

inline std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace kvgraft
