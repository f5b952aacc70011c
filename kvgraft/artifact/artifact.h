// The .kvg container, version 1 (docs/format.md): one captured state with everything that is needed
// to decide whether it may be loaded here, to prove that it is what it says, and to compute it
// again. This module knows bytes, not engines: it reads and writes, it never restores.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/file.h"
#include "kvgraft/core/identity.h"
#include "kvgraft/core/status.h"

namespace kvgraft::artifact {

inline constexpr uint16_t kFormatVersion = 1;

// On disk: never renumber.
enum class SectionKind : uint32_t {
  kManifest = 1,   // UTF-8 JSON, see Manifest
  kTokens = 2,     // i32 each: every token of the artifact, the ones after the image included
  kPositions = 3,  // i32 each: position of every token in the image; absent when 0 .. n-1
  kText = 4,       // UTF-8: source text
  kImage = 5,      // engine bytes
  kPages = 6,      // u64 each: XXH3-64 of each page of the image
};

// Hashes of F32 logits that a restored state must reproduce: SHA-256 over the little-endian bytes.
struct Probe {
  std::vector<int32_t> suffix;  // the 7 fixed tokens decoded after the state, padded path
  std::string padded_sha256;    // logits of all 7 rows, [7][n_vocab]
  int32_t single_token = 0;     // one more token, decoded alone (single-row path)
  std::string single_sha256;    // its logits, [n_vocab]
  uint32_t single_threads = 0;  // threads at the time: the single-row path may depend on them
  bool operator==(const Probe&) const = default;
};

// How the state was computed.
struct ScheduleInfo {
  std::string kind;          // "exact", or "fast": not computed by the padding rule
  uint32_t row_quantum = 0;  // rows that batches were padded to
  std::string attention;     // "flash" or "plain"
  uint32_t n_ubatch = 0;
  bool verified = false;  // the self-test held for this model, machine and configuration
  bool operator==(const ScheduleInfo&) const = default;
};

struct Manifest {
  std::string id;              // content identity, 64 hex digits; see ContentId
  std::string name;            // suggestion for an import; the store keeps its own names
  std::string tier = "exact";  // "exact", "imported"; see docs/format.md
  StateIdentity identity;
  uint64_t n_tokens = 0;        // in the kTokens section
  uint64_t n_image_tokens = 0;  // of these, in the image (the rest is decoded again at a graft)
  ScheduleInfo schedule;
  Probe probe;             // empty hashes: no probe
  std::string parent;      // id of the artifact that this one continues, or ""
  std::string model_name;  // for people only
  std::string created;     // UTC, "2026-11-30T16:24:09Z"; not part of the content identity
  std::string producer;    // "kvgraft 0.1.0"
  // How a prompt goes on after this artifact: kind is "raw" or "chat"; for chat, text that closes
  // the user's turn and opens the assistant's (tokenised with special tokens).
  std::string prompt_kind = "raw";
  std::string prompt_suffix;
  uint64_t prefill_us = 0;  // what computing the state took, for people only
  // Loss of each of the last tokens given all before them, -ln p in millionths of a nat, by the
  // padding rule; the last entry is the last token's. What a composition is held against
  // (session/drift.h). Empty: not taken.
  std::vector<uint64_t> tail_loss;
};

// A whole artifact in memory or as views into a mapped file.
struct Parts {
  Manifest manifest;
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;  // empty: 0 .. n_image_tokens-1
  std::string text;
};

// SHA-256 over a domain tag, the compat fields, tokens, positions and the image: equal for equal
// states whenever and wherever captured. Names, times, text and probes do not enter.
std::string ContentId(const StateIdentity& identity, std::span<const int32_t> tokens,
                      std::span<const int32_t> positions, uint64_t n_image_tokens, ByteSpan image);

struct WriteOptions {
  uint16_t version = kFormatVersion;  // an older version, for readers that need it
  uint32_t page_bytes = 1 << 20;      // power of two, 4 KiB .. 64 MiB
};

// Exact size of the file that Write makes.
Result<uint64_t> FileBytes(const Parts& parts, uint64_t image_bytes,
                           const WriteOptions& options = {});
// Writes to `out`, which the caller commits. Fills manifest.id if empty, refuses it if wrong.
Status Write(Parts& parts, ByteSpan image, AtomicFile& out, const WriteOptions& options = {});
// The same into memory: for tests and golden files.
Result<std::vector<uint8_t>> Encode(Parts& parts, ByteSpan image, const WriteOptions& options = {});

// An opened artifact. Opening verifies the header, the section table, every section but the image
// (checksums, limits, padding) and the manifest; VerifyPages verifies the image. Both refuse
// before anything else may look at the bytes.
class Reader {
 public:
  static Result<Reader> Open(const std::string& path);
  // `bytes` must outlive the reader.
  static Result<Reader> FromBytes(ByteSpan bytes, std::string what);

  Reader(Reader&&) noexcept = default;
  Reader& operator=(Reader&&) noexcept = default;

  const Manifest& manifest() const { return parts_.manifest; }
  const std::vector<int32_t>& tokens() const { return parts_.tokens; }
  const std::vector<int32_t>& positions() const { return parts_.positions; }
  const std::string& text() const { return parts_.text; }
  uint64_t file_bytes() const { return bytes_.size(); }
  uint64_t n_pages() const { return pages_.size(); }
  uint32_t page_bytes() const { return page_bytes_; }

  // XXH3 of every page, on up to n_threads threads; kCorrupt names the first bad page and offset.
  Status VerifyPages(unsigned n_threads = 1) const;
  // Recomputes the SHA-256 content identity; kCorrupt when it is not manifest().id.
  Status VerifyContent() const;
  // The engine's bytes; call VerifyPages first. 64-byte aligned in the file.
  ByteSpan image() const { return image_; }

 private:
  Reader() = default;
  MappedFile file_;
  ByteSpan bytes_, image_;
  Parts parts_;
  std::vector<uint64_t> pages_;
  uint32_t page_bytes_ = 0;
  std::string what_;
};

// Limits, checked before memory is taken.
inline constexpr uint32_t kMaxSections = 4096;
inline constexpr uint64_t kMaxManifestBytes = 4ull << 20;
inline constexpr uint64_t kMaxTokens = 64ull << 20;
inline constexpr uint64_t kMaxTextBytes = 1ull << 30;
inline constexpr uint64_t kMaxFileBytes = 1ull << 46;

}  // namespace kvgraft::artifact
