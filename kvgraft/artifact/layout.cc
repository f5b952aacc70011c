#include "kvgraft/artifact/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kvgraft/core/hash.h"

namespace kvgraft::artifact {
namespace {

Status Corrupt(std::string message) { return Status(Code::kCorrupt, std::move(message)); }
Status Unsupported(std::string message) { return Status(Code::kUnsupported, std::move(message)); }

// Says what probably happened to the first bytes: magic as PNG's tells these apart.
Status BadMagic(ByteSpan head) {
  const auto starts_with = [head](std::initializer_list<uint8_t> bytes) {
    return head.size() >= bytes.size() && std::equal(bytes.begin(), bytes.end(), head.begin());
  };
  if (std::equal(std::rbegin(kMagic), std::rend(kMagic), head.begin())) {
    return Unsupported(
        "written in big-endian byte order; this is little-endian, as .kvg files always are");
  }
  if (starts_with({0x89, 'K', 'V', 'G', '\n'}) || starts_with({0x89, 'K', 'V', 'G', '\r', '\r'}) ||
      starts_with({0x09, 'K', 'V', 'G'})) {
    return Corrupt(
        "damaged by a transfer in text mode (line ends or high bits were changed); copy "
        "the file again in binary mode");
  }
  return Corrupt("not a .kvg artifact (it does not start with the bytes 89 4b 56 47 0d 0a 1a 0a)");
}

bool IsKnown(uint32_t kind) {
  return kind >= static_cast<uint32_t>(SectionKind::kManifest) &&
         kind <= static_cast<uint32_t>(SectionKind::kPages);
}

// Step 7 and 8 for one entry; `end` is where the one before it (or the table) ends.
Status CheckEntry(const SectionEntry& e, uint64_t index, uint64_t end, uint64_t file_bytes) {
  const std::string where = fmt::format("section {} ({})", index, SectionName(e.kind));
  if (e.kind == 0) return Corrupt(where + ": kind 0 does not exist");
  if ((e.flags & ~kFlagRequired) != 0) {
    return Corrupt(fmt::format("{}: reserved flags {:#x} are set", where, e.flags));
  }
  const uint64_t expected = Align64(end);
  if (e.offset != expected) {
    return Corrupt(fmt::format("{}: starts at {}, expected {}", where, e.offset, expected));
  }
  if (expected > file_bytes || e.bytes > file_bytes - expected) {
    return Corrupt(fmt::format("{}: {} bytes at offset {}, but the file has {}", where, e.bytes,
                               e.offset, file_bytes));
  }
  const bool required = (e.flags & kFlagRequired) != 0;
  if (!IsKnown(e.kind) && required) {
    return Unsupported(where +
                       ": marked as required and not known to this program; a newer one is needed");
  }
  if (IsKnown(e.kind) && e.codec != 0) {
    return Unsupported(fmt::format("{}: codec {} is not known to this program", where, e.codec));
  }
  return Status::Ok();
}

Status CheckLimit(const SectionEntry& e, uint64_t limit, uint64_t unit) {
  if (e.bytes > limit) {
    return Corrupt(
        fmt::format("{}: {} bytes, the limit is {}", SectionName(e.kind), e.bytes, limit));
  }
  if (e.bytes % unit != 0) {
    return Corrupt(
        fmt::format("{}: {} bytes, not a multiple of {}", SectionName(e.kind), e.bytes, unit));
  }
  return Status::Ok();
}

Status CheckPages(const SectionEntry& pages, const SectionEntry& image) {
  const uint64_t page = pages.parameter;
  if (page < kMinPageBytes || page > kMaxPageBytes || (page & (page - 1)) != 0) {
    return Corrupt(fmt::format("pages: page size {}, expected a power of two from {} to {}", page,
                               kMinPageBytes, kMaxPageBytes));
  }
  if (image.bytes == 0) return Corrupt("image: 0 bytes, expected at least 1");
  const uint64_t n = (image.bytes - 1) / page + 1;
  if (pages.bytes != n * 8) {
    return Corrupt(fmt::format("pages: {} bytes, expected {} for the {} pages of the image",
                               pages.bytes, n * 8, n));
  }
  return Status::Ok();
}

}  // namespace

std::string SectionName(uint32_t kind) {
  switch (static_cast<SectionKind>(kind)) {
    case SectionKind::kManifest:
      return "manifest";
    case SectionKind::kTokens:
      return "tokens";
    case SectionKind::kPositions:
      return "positions";
    case SectionKind::kText:
      return "text";
    case SectionKind::kImage:
      return "image";
    case SectionKind::kPages:
      return "pages";
  }
  return "section kind " + std::to_string(kind);
}

Result<Header> ParseHeader(ByteSpan file) {
  if (file.size() < kHeaderBytes) {
    return Corrupt(
        fmt::format("cut off: {} bytes, an artifact has at least {}", file.size(), kHeaderBytes));
  }
  const ByteSpan head = file.first(kHeaderBytes);
  if (std::memcmp(head.data(), kMagic, sizeof(kMagic)) != 0) return BadMagic(head);
  Header h;
  ByteReader in(head, "header");
  KVG_RETURN(in.Skip(sizeof(kMagic)));
  KVG_ASSIGN(h.version, in.U16());
  KVG_ASSIGN(const uint16_t header_bytes, in.U16());
  KVG_ASSIGN(h.refuse_bits, in.U32());
  KVG_ASSIGN(h.ignore_bits, in.U32());
  KVG_ASSIGN(const uint32_t reserved, in.U32());
  KVG_ASSIGN(h.file_bytes, in.U64());
  KVG_ASSIGN(const uint64_t table_offset, in.U64());
  KVG_ASSIGN(h.n_sections, in.U64());
  KVG_ASSIGN(h.table_checksum, in.U64());
  KVG_ASSIGN(const uint64_t checksum, in.U64());
  if (checksum != Xxh3(head.first(56))) {
    return Corrupt("header: checksum differs, the file is damaged");
  }
  // The header is whole, so a strange version was written on purpose.
  if (h.version < kOldestVersion || h.version > kFormatVersion) {
    return Unsupported(fmt::format(
        "written in format version {}, this program reads {} to {}{}", h.version, kOldestVersion,
        kFormatVersion, h.version > kFormatVersion ? "; a newer program is needed" : ""));
  }
  if ((h.refuse_bits & ~kKnownRefuseBits) != 0) {
    return Unsupported(
        fmt::format("needs features {:#x} that this program does not know; a newer "
                    "one is needed",
                    h.refuse_bits & ~kKnownRefuseBits));
  }
  if (header_bytes != kHeaderBytes || reserved != 0 || table_offset != kHeaderBytes) {
    return Corrupt(
        fmt::format("header: {} bytes, reserved field {}, table at {}; expected {}, 0, {}",
                    header_bytes, reserved, table_offset, kHeaderBytes, kHeaderBytes));
  }
  if (h.file_bytes != file.size()) {
    return Corrupt(fmt::format("{}: {} bytes, the header says {}",
                               file.size() < h.file_bytes ? "cut off" : "bytes were added",
                               file.size(), h.file_bytes));
  }
  if (h.file_bytes > kMaxFileBytes) {
    return Corrupt(fmt::format("{} bytes, the limit is {}", h.file_bytes, kMaxFileBytes));
  }
  return h;
}

Result<std::vector<SectionEntry>> ParseTable(ByteSpan file, const Header& header) {
  if (header.n_sections == 0 || header.n_sections > kMaxSections) {
    return Corrupt(fmt::format("{} sections, expected 1 to {}", header.n_sections, kMaxSections));
  }
  ByteReader in(file, "section table");
  KVG_RETURN(in.Skip(kHeaderBytes));
  KVG_ASSIGN(const ByteSpan table, in.Take(header.n_sections * kEntryBytes));
  if (header.table_checksum != Xxh3(table)) {
    return Corrupt("section table: checksum differs, the file is damaged");
  }
  std::vector<SectionEntry> entries(static_cast<size_t>(header.n_sections));
  ByteReader rows(table, "section table");
  uint64_t end = kHeaderBytes + table.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    SectionEntry& e = entries[i];
    KVG_ASSIGN(e.kind, rows.U32());
    KVG_ASSIGN(e.flags, rows.U32());
    KVG_ASSIGN(e.offset, rows.U64());
    KVG_ASSIGN(e.bytes, rows.U64());
    KVG_ASSIGN(e.checksum, rows.U64());
    KVG_ASSIGN(e.parameter, rows.U64());
    KVG_ASSIGN(e.codec, rows.U32());
    KVG_ASSIGN(const ByteSpan reserved, rows.Take(20));
    if (std::any_of(reserved.begin(), reserved.end(), [](uint8_t b) { return b != 0; })) {
      return Corrupt(fmt::format("section {}: reserved bytes are not 0", i));
    }
    KVG_RETURN(CheckEntry(e, i, end, file.size()));
    end = e.offset + e.bytes;
  }
  if (end != file.size()) {
    return Corrupt(fmt::format("the last section ends at {}, the file at {}", end, file.size()));
  }
  return entries;
}

const SectionEntry* FindSection(const std::vector<SectionEntry>& entries, SectionKind kind) {
  for (const SectionEntry& e : entries) {
    if (e.kind == static_cast<uint32_t>(kind)) return &e;
  }
  return nullptr;
}

Status CheckSections(const std::vector<SectionEntry>& entries) {
  uint32_t seen = 0;
  for (const SectionEntry& e : entries) {
    if (!IsKnown(e.kind)) continue;
    if ((seen & (1u << e.kind)) != 0) return Corrupt(SectionName(e.kind) + ": more than one");
    seen |= 1u << e.kind;
    if (e.kind != static_cast<uint32_t>(SectionKind::kPages) && e.parameter != 0) {
      return Corrupt(fmt::format("{}: parameter {}, expected 0", SectionName(e.kind), e.parameter));
    }
  }
  for (SectionKind kind :
       {SectionKind::kManifest, SectionKind::kTokens, SectionKind::kImage, SectionKind::kPages}) {
    if ((seen & (1u << static_cast<uint32_t>(kind))) == 0) {
      return Corrupt(SectionName(static_cast<uint32_t>(kind)) + ": missing");
    }
  }
  KVG_RETURN(CheckLimit(*FindSection(entries, SectionKind::kManifest), kMaxManifestBytes, 1));
  KVG_RETURN(CheckLimit(*FindSection(entries, SectionKind::kTokens), kMaxTokens * 4, 4));
  if (const auto* e = FindSection(entries, SectionKind::kPositions)) {
    KVG_RETURN(CheckLimit(*e, kMaxTokens * 4, 4));
  }
  if (const auto* e = FindSection(entries, SectionKind::kText)) {
    KVG_RETURN(CheckLimit(*e, kMaxTextBytes, 1));
  }
  const SectionEntry& image = *FindSection(entries, SectionKind::kImage);
  if (image.checksum != 0) return Corrupt("image: checksum field is not 0");
  return CheckPages(*FindSection(entries, SectionKind::kPages), image);
}

std::vector<uint8_t> EncodeHead(Header header, const std::vector<SectionEntry>& entries) {
  ByteWriter table;
  for (const SectionEntry& e : entries) {
    const size_t start = table.size();
    table.U32(e.kind);
    table.U32(e.flags);
    table.U64(e.offset);
    table.U64(e.bytes);
    table.U64(e.checksum);
    table.U64(e.parameter);
    table.U32(e.codec);
    table.ZerosTo(start + kEntryBytes);
  }
  ByteWriter head;
  head.Bytes(kMagic);
  head.U16(header.version);
  head.U16(static_cast<uint16_t>(kHeaderBytes));
  head.U32(header.refuse_bits);
  head.U32(header.ignore_bits);
  head.U32(0);
  head.U64(header.file_bytes);
  head.U64(kHeaderBytes);
  head.U64(entries.size());
  head.U64(Xxh3(table.bytes()));
  head.U64(Xxh3(head.bytes()));
  head.Bytes(table.bytes());
  return std::move(head).Take();
}

}  // namespace kvgraft::artifact
