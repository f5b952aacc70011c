// Header and section table of a .kvg file (docs/format.md, section 2): plain structs, their bytes,
// and the checks that need no payload. Internal to this module, apart from tests.
#pragma once

#include <cstdint>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/bytes.h"
#include "kvgraft/core/status.h"

namespace kvgraft::artifact {

inline constexpr uint8_t kMagic[8] = {0x89, 'K', 'V', 'G', '\r', '\n', 0x1a, '\n'};
inline constexpr uint16_t kOldestVersion = 1;  // this reader reads kOldestVersion .. kFormatVersion
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kEntryBytes = 64;
inline constexpr uint64_t kAlignment = 64;
inline constexpr uint32_t kFlagRequired = 1;
inline constexpr uint32_t kMinPageBytes = 4u << 10;
inline constexpr uint32_t kMaxPageBytes = 64u << 20;
// Feature bits that this reader knows: none yet.
inline constexpr uint32_t kKnownRefuseBits = 0;

struct Header {
  uint16_t version = kFormatVersion;
  uint32_t refuse_bits = 0;
  uint32_t ignore_bits = 0;
  uint64_t file_bytes = 0;
  uint64_t n_sections = 0;
  uint64_t table_checksum = 0;
};

struct SectionEntry {
  uint32_t kind = 0;  // a SectionKind, or one that this reader does not know
  uint32_t flags = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;   // 0 for the image
  uint64_t parameter = 0;  // kPages: bytes of a page
  uint32_t codec = 0;      // 0: raw
};

// The least multiple of 64 that is not less than x; x is below 2^63.
constexpr uint64_t Align64(uint64_t x) { return (x + (kAlignment - 1)) & ~(kAlignment - 1); }

// "manifest", "tokens", ...; "section kind N" for others.
std::string SectionName(uint32_t kind);

// Steps 1 to 5 of docs/format.md, section 9: magic, header checksum, version, feature bits, size.
// Reads `file`'s first 64 bytes and its length only. kCorrupt or kUnsupported.
Result<Header> ParseHeader(ByteSpan file);

// Steps 6 to 8: the table's checksum, and every entry's place, flags and codec. Afterwards every
// entry's payload lies in `file`, in order, without overlap, and the last one ends it.
Result<std::vector<SectionEntry>> ParseTable(ByteSpan file, const Header& header);

// Steps 9 and 11, as far as sizes go: which sections there are, limits, and sizes that must agree.
Status CheckSections(const std::vector<SectionEntry>& entries);

// The entry of `kind`, or null.
const SectionEntry* FindSection(const std::vector<SectionEntry>& entries, SectionKind kind);

// Header (with its checksum) and table, as they stand at the start of the file.
std::vector<uint8_t> EncodeHead(Header header, const std::vector<SectionEntry>& entries);

}  // namespace kvgraft::artifact
