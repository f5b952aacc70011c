// For tests of this module: artifacts with known content, and ways to change a file so that its
// checksums hold again, which is how a check behind the checksums is reached.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/artifact/layout.h"
#include "kvgraft/core/hash.h"

namespace kvgraft::artifact::testing {

using Bytes = std::vector<uint8_t>;

// Deterministic on every platform, unlike the standard distributions.
inline Bytes RandomBytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() >> 24);
  return bytes;
}

// Three tokens, nothing optional.
inline Parts SmallParts() {
  Parts parts;
  parts.tokens = {1, 2, 3};
  parts.manifest.identity.SetCompat("model.sha256", std::string(64, 'a'));
  parts.manifest.n_tokens = 3;
  parts.manifest.n_image_tokens = 3;
  parts.manifest.schedule = {.kind = "exact", .row_quantum = 8, .attention = "plain"};
  return parts;
}

// Every field and every section set, to something that is not its default.
inline Parts FullParts() {
  Parts parts;
  parts.tokens = {0, 17, 49151, 2147483647, 5, 6, 7};
  parts.positions = {4, 5, 6, 10, 2147483647};
  parts.text = "Zürich \xe2\x82\xac 漢字\n";
  parts.text.push_back('\0');
  Manifest& m = parts.manifest;
  m.name = "notes.2026";
  m.tier = "moved";
  m.identity.SetCompat("model.sha256", std::string(64, 'b'));
  m.identity.SetCompat("cache.type_k", "q8_0");
  m.identity.SetCompat("tenant", "Zürich = \"quoted\" \\ backslash");
  m.identity.SetBuild("engine.version", "0.5.0-dev");
  m.identity.SetBuild("cpu.features", "");
  m.n_tokens = 7;
  m.n_image_tokens = 5;
  m.schedule = {.kind = "fast",
                .row_quantum = 64,
                .attention = "flash",
                .n_ubatch = 4294967295u,
                .verified = true};
  m.probe = {.suffix = {22468, 16467, 2454, 29693, 25912, 26423, 23338},
             .padded_sha256 = std::string(64, 'c'),
             .single_token = 4225,
             .single_sha256 = std::string(64, 'd'),
             .single_threads = 2};
  m.parent = std::string(64, 'e');
  m.model_name = "Toy \xf0\x9f\xa6\x99 \"135M\"\t\n";
  m.created = "2026-11-30T16:24:09Z";
  m.producer = "kvgraft 0.1.0";
  m.prompt_kind = "chat";
  m.prompt_suffix = "<|im_end|>\n<|im_start|>assistant\n";
  m.prefill_us = (1ull << 53) - 1;
  return parts;
}

inline constexpr WriteOptions kSmallPages = {.page_bytes = 4096};

inline Bytes MustEncode(Parts parts, ByteSpan image, const WriteOptions& options = kSmallPages) {
  auto file = Encode(parts, image, options);
  KVG_CHECK(file.ok());
  return std::move(file).value();
}

inline void PutU64(Bytes& file, size_t offset, uint64_t value, size_t n_bytes = 8) {
  for (size_t i = 0; i < n_bytes; ++i) file[offset + i] = static_cast<uint8_t>(value >> (8 * i));
}

inline uint64_t GetU64(const Bytes& file, size_t offset, size_t n_bytes = 8) {
  uint64_t value = 0;
  for (size_t i = 0; i < n_bytes; ++i) value |= uint64_t{file[offset + i]} << (8 * i);
  return value;
}

// Makes the checksums of the header and of a table with n_sections entries hold again.
inline void Seal(Bytes& file, size_t n_sections) {
  PutU64(file, 48, Xxh3(ByteSpan(file).subspan(64, n_sections * 64)));
  PutU64(file, 56, Xxh3(ByteSpan(file).first(56)));
}

// Section payloads in file order, as a writer of another version might have them.
struct RawSection {
  SectionEntry entry;  // kind, flags, parameter, codec; place and checksum are filled in
  Bytes payload;
};

inline std::vector<RawSection> Disassemble(const Bytes& file) {
  std::vector<RawSection> sections;
  const Header header = ParseHeader(file).value();
  for (const SectionEntry& e : ParseTable(file, header).value()) {
    const ByteSpan payload = ByteSpan(file).subspan(e.offset, e.bytes);
    sections.push_back({e, Bytes(payload.begin(), payload.end())});
  }
  return sections;
}

inline Bytes Assemble(const std::vector<RawSection>& sections, Header header = {}) {
  std::vector<SectionEntry> entries;
  uint64_t end = kHeaderBytes + sections.size() * kEntryBytes;
  for (const RawSection& s : sections) {
    SectionEntry e = s.entry;
    e.offset = Align64(end);
    e.bytes = s.payload.size();
    e.checksum = e.kind == static_cast<uint32_t>(SectionKind::kImage) ? 0 : Xxh3(s.payload);
    end = e.offset + e.bytes;
    entries.push_back(e);
  }
  header.file_bytes = end;
  Bytes file = EncodeHead(header, entries);
  for (size_t i = 0; i < sections.size(); ++i) {
    file.resize(entries[i].offset);
    file.insert(file.end(), sections[i].payload.begin(), sections[i].payload.end());
  }
  return file;
}

// What a load does before an engine sees a byte.
inline Status LoadAll(ByteSpan file) {
  KVG_ASSIGN(const Reader reader, Reader::FromBytes(file, "test.kvg"));
  return reader.VerifyPages();
}

}  // namespace kvgraft::artifact::testing
