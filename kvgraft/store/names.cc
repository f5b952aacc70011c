#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "kvgraft/core/hash.h"
#include "kvgraft/store/store.h"

namespace kvgraft::store {
namespace {

constexpr size_t kMaxNameChars = 128;

bool IsAsciiAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Names that other systems take for devices, with any extension: CON, con.txt, LPT1.
bool IsDeviceName(std::string_view name) {
  std::string stem(name.substr(0, name.find('.')));
  std::transform(stem.begin(), stem.end(), stem.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array<std::string_view, 4> kDevices = {"CON", "PRN", "AUX", "NUL"};
  if (std::find(kDevices.begin(), kDevices.end(), stem) != kDevices.end()) return true;
  return stem.size() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) &&
         stem[3] >= '0' && stem[3] <= '9';
}

// Printable and short, so that a message cannot carry control characters to a terminal.
std::string Quote(std::string_view name) {
  std::string out = "\"";
  for (unsigned char c : name.substr(0, 40)) {
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      out += static_cast<char>(c);
    } else {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\x%02x", c);
      out += buffer;
    }
  }
  return out + (name.size() > 40 ? "...\"" : "\"");
}

}  // namespace

Status CheckName(std::string_view name) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument,
                  "store: name " + Quote(name) + " " + why +
                      "; use 1 to 128 of A-Z a-z 0-9 . _ - and start with a letter or digit");
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kMaxNameChars) {
    return refuse("has " + std::to_string(name.size()) + " bytes, the limit is 128");
  }
  for (char c : name) {
    if (!IsAsciiAlnum(c) && c != '.' && c != '_' && c != '-') {
      return refuse("has a character that is not allowed");
    }
  }
  if (!IsAsciiAlnum(name.front())) return refuse("does not start with a letter or digit");
  if (name.back() == '.') return refuse("ends with a dot");
  if (IsDeviceName(name)) return refuse("is a device name on other systems");
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (IsSha256Hex(lower)) return refuse("looks like an artifact's id");
  return Status::Ok();
}

}  // namespace kvgraft::store
