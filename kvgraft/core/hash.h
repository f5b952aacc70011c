// Two hashes, two purposes: XXH3-64 runs at memory speed and guards every page that a load reads;
// SHA-256 (OpenSSL) is the identity of content and of model files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvgraft/core/bytes.h"

namespace kvgraft {

uint64_t Xxh3(ByteSpan bytes);

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(ByteSpan bytes);
  void Update(std::string_view s) { Update(AsBytes(s)); }
  // Lower-case hex, 64 characters. The object is spent afterwards.
  std::string Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string Sha256Hex(ByteSpan bytes);
inline std::string Sha256Hex(std::string_view s) { return Sha256Hex(AsBytes(s)); }

// Reads the file once, front to back. kNotFound or kIo.
Result<std::string> Sha256File(const std::string& path);

bool IsSha256Hex(std::string_view s);

}  // namespace kvgraft
