// Bounds-checked little-endian reading and writing. Every number that comes from a file passes
// through ByteReader; nothing is allocated by a size that has not been checked against the input.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft {

using ByteSpan = std::span<const uint8_t>;
using MutableByteSpan = std::span<uint8_t>;

// Reads from a view that must outlive it. `what` names the source in error messages.
class ByteReader {
 public:
  ByteReader(ByteSpan bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  Result<uint8_t> U8();
  Result<uint16_t> U16();
  Result<uint32_t> U32();
  Result<uint64_t> U64();
  Result<int32_t> I32();
  // The next n bytes, as a view; kCorrupt when fewer remain.
  Result<ByteSpan> Take(uint64_t n);
  Status Skip(uint64_t n);

 private:
  ByteSpan bytes_;
  size_t offset_ = 0;
  std::string what_;
};

// Appends little-endian values to a growing buffer.
class ByteWriter {
 public:
  void U8(uint8_t v) { out_.push_back(v); }
  void U16(uint16_t v);
  void U32(uint32_t v);
  void U64(uint64_t v);
  void I32(int32_t v) { U32(static_cast<uint32_t>(v)); }
  void Bytes(ByteSpan bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void ZerosTo(size_t size) {
    if (out_.size() < size) out_.resize(size);
  }
  size_t size() const { return out_.size(); }
  const std::vector<uint8_t>& bytes() const { return out_; }
  std::vector<uint8_t> Take() && { return std::move(out_); }

 private:
  std::vector<uint8_t> out_;
};

inline ByteSpan AsBytes(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
inline std::string_view AsChars(ByteSpan b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// Human-readable size with a binary unit: "34.6 MiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace kvgraft
