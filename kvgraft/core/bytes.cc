#include "kvgraft/core/bytes.h"

#include <fmt/format.h>

namespace kvgraft {
namespace {

template <typename T>
T LoadLittle(ByteSpan b) {
  T v = 0;
  for (size_t i = 0; i < sizeof(T); ++i) v = static_cast<T>(v | (static_cast<T>(b[i]) << (8 * i)));
  return v;
}

template <typename T>
void AppendLittle(std::vector<uint8_t>& out, T v) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
}

}  // namespace

Result<ByteSpan> ByteReader::Take(uint64_t n) {
  if (n > remaining()) {
    return Status(Code::kCorrupt,
                  fmt::format("{}: {} bytes needed at offset {}, {} left (cut off or damaged)",
                              what_, n, offset_, remaining()));
  }
  ByteSpan view = bytes_.subspan(offset_, static_cast<size_t>(n));
  offset_ += static_cast<size_t>(n);
  return view;
}

Status ByteReader::Skip(uint64_t n) { return Take(n).status(); }

Result<uint8_t> ByteReader::U8() {
  KVG_ASSIGN(ByteSpan b, Take(1));
  return b[0];
}

Result<uint16_t> ByteReader::U16() {
  KVG_ASSIGN(ByteSpan b, Take(2));
  return LoadLittle<uint16_t>(b);
}

Result<uint32_t> ByteReader::U32() {
  KVG_ASSIGN(ByteSpan b, Take(4));
  return LoadLittle<uint32_t>(b);
}

Result<uint64_t> ByteReader::U64() {
  KVG_ASSIGN(ByteSpan b, Take(8));
  return LoadLittle<uint64_t>(b);
}

Result<int32_t> ByteReader::I32() {
  KVG_ASSIGN(uint32_t v, U32());
  return static_cast<int32_t>(v);
}

void ByteWriter::U16(uint16_t v) { AppendLittle(out_, v); }
void ByteWriter::U32(uint32_t v) { AppendLittle(out_, v); }
void ByteWriter::U64(uint64_t v) { AppendLittle(out_, v); }

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double v = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would print as "1024.0".
  while (v >= 1023.95 && unit + 1 < std::size(kUnits)) {
    v /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", v, kUnits[unit]);
}

}  // namespace kvgraft
