// Any bytes through the artifact reader: it must answer with a Status, without a crash, a read out
// of bounds or memory out of proportion. What it accepts must hold together, and encode again to
// the same content. The body of artifact_reader_fuzz.cc and of the test that replays its corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/artifact/layout.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/core/status.h"

namespace kvgraft::fuzz {

inline void Put(std::vector<uint8_t>& file, size_t offset, uint64_t value) {
  for (size_t i = 0; i < 8; ++i) file[offset + i] = static_cast<uint8_t>(value >> (8 * i));
}

inline uint64_t Get(const std::vector<uint8_t>& file, size_t offset) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) value |= uint64_t{file[offset + i]} << (8 * i);
  return value;
}

// Makes the checksums of the header, the table and the payloads that lie in the file hold.
inline void Seal(std::vector<uint8_t>& file) {
  if (file.size() < 64) return;
  const ByteSpan bytes(file);
  const uint64_t count = Get(file, 40);
  if (count <= artifact::kMaxSections && 64 + count * 64 <= file.size()) {
    for (uint64_t i = 0; i < count; ++i) {
      const size_t entry = static_cast<size_t>(64 + i * 64);
      const uint64_t offset = Get(file, entry + 8), size = Get(file, entry + 16);
      const bool image = file[entry] == static_cast<uint8_t>(artifact::SectionKind::kImage);
      if (image || offset > file.size() || size > file.size() - offset) continue;
      Put(file, entry + 24,
          Xxh3(bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(size))));
    }
    Put(file, 48, Xxh3(bytes.subspan(64, static_cast<size_t>(count * 64))));
  }
  Put(file, 56, Xxh3(bytes.first(56)));
}

inline void CheckAccepted(const artifact::Reader& reader) {
  const artifact::Manifest& m = reader.manifest();
  KVG_CHECK(m.n_tokens == reader.tokens().size());
  KVG_CHECK(m.n_image_tokens <= m.n_tokens);
  KVG_CHECK(reader.positions().empty() || reader.positions().size() == m.n_image_tokens);
  KVG_CHECK(!reader.image().empty());
  if (!reader.VerifyPages(1).ok() || !reader.VerifyContent().ok()) return;
  // Written again it has the same content (not the same bytes: a later writer may have added some).
  artifact::Parts parts{m, reader.tokens(), reader.positions(), reader.text()};
  const auto again = artifact::Encode(parts, reader.image(), {.page_bytes = reader.page_bytes()});
  KVG_CHECK(again.ok());
  const auto second = artifact::Reader::FromBytes(*again, "again");
  KVG_CHECK(second.ok() && second->manifest().id == m.id && second->text() == reader.text());
}

// Opens, verifies, and checks what was accepted. True: sound in every respect.
inline bool Accepts(ByteSpan file) {
  const auto reader = artifact::Reader::FromBytes(file, "fuzz");
  if (!reader.ok()) {
    KVG_CHECK(reader.status().code() == Code::kCorrupt ||
              reader.status().code() == Code::kUnsupported);
    return false;
  }
  CheckAccepted(*reader);
  return reader->VerifyPages(1).ok() && reader->VerifyContent().ok();
}

// One input of the fuzzer. A fuzzer does not find matching XXH3 sums by chance, so with a leading
// byte 'S' the rest is a file whose checksums are first made to hold.
inline void RunArtifactReader(ByteSpan input) {
  if (!input.empty() && input[0] == 'S') {
    std::vector<uint8_t> file(input.begin() + 1, input.end());
    Seal(file);
    (void)Accepts(file);
  }
  (void)Accepts(input);
}

}  // namespace kvgraft::fuzz
