#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/artifact/layout.h"
#include "kvgraft/artifact/manifest.h"
#include "kvgraft/artifact/pack.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/core/parallel.h"

namespace kvgraft::artifact {
namespace {

Status Corrupt(std::string message) { return Status(Code::kCorrupt, std::move(message)); }

// ParseTable has shown that the payload lies in the file.
ByteSpan Payload(ByteSpan file, const SectionEntry& e) {
  return file.subspan(static_cast<size_t>(e.offset), static_cast<size_t>(e.bytes));
}

// Step 10: padding and every checksum but the image's pages.
Status VerifySections(ByteSpan file, const std::vector<SectionEntry>& entries) {
  uint64_t end = kHeaderBytes + entries.size() * kEntryBytes;
  for (const SectionEntry& e : entries) {
    const ByteSpan gap =
        file.subspan(static_cast<size_t>(end), static_cast<size_t>(e.offset - end));
    if (std::any_of(gap.begin(), gap.end(), [](uint8_t b) { return b != 0; })) {
      return Corrupt(
          fmt::format("padding before {} is not 0, the file is damaged", SectionName(e.kind)));
    }
    const bool is_image = e.kind == static_cast<uint32_t>(SectionKind::kImage);
    if (!is_image && e.checksum != Xxh3(Payload(file, e))) {
      return Corrupt(SectionName(e.kind) + ": checksum differs, the file is damaged");
    }
    end = e.offset + e.bytes;
  }
  return Status::Ok();
}

// Step 12: what the manifest says about the other sections.
Status CheckAgreement(const Parts& parts) {
  const Manifest& m = parts.manifest;
  if (parts.tokens.size() != m.n_tokens) {
    return Corrupt(
        fmt::format("tokens: {}, the manifest says {}", parts.tokens.size(), m.n_tokens));
  }
  const auto negative = [](int32_t v) { return v < 0; };
  if (std::any_of(parts.tokens.begin(), parts.tokens.end(), negative)) {
    return Corrupt("tokens: a negative token");
  }
  if (std::any_of(parts.positions.begin(), parts.positions.end(), negative)) {
    return Corrupt("positions: a negative position");
  }
  return Status::Ok();
}

Status ReadParts(ByteSpan file, const std::vector<SectionEntry>& entries, Parts* parts) {
  const auto& manifest = *FindSection(entries, SectionKind::kManifest);
  KVG_ASSIGN(parts->manifest, ManifestFromJson(AsChars(Payload(file, manifest))));
  parts->tokens = UnpackI32(Payload(file, *FindSection(entries, SectionKind::kTokens)));
  if (const auto* e = FindSection(entries, SectionKind::kPositions)) {
    parts->positions = UnpackI32(Payload(file, *e));
    if (parts->positions.size() != parts->manifest.n_image_tokens) {
      return Corrupt(fmt::format("positions: {}, the manifest says {} tokens in the image",
                                 parts->positions.size(), parts->manifest.n_image_tokens));
    }
  }
  if (const auto* e = FindSection(entries, SectionKind::kText)) {
    parts->text = AsChars(Payload(file, *e));
  }
  return CheckAgreement(*parts);
}

}  // namespace

Result<Reader> Reader::Open(const std::string& path) {
  // Not populated: a listing needs a few pages of what may be gigabytes. VerifyPages reads ahead.
  KVG_ASSIGN(MappedFile file, MappedFile::Open(path, /*populate=*/false));
  KVG_ASSIGN(Reader reader, FromBytes(file.bytes(), path));
  reader.file_ = std::move(file);  // moving a mapping does not move its bytes
  return reader;
}

Result<Reader> Reader::FromBytes(ByteSpan bytes, std::string what) {
  Reader reader;
  const auto load = [&reader, bytes]() -> Status {
    KVG_ASSIGN(const Header header, ParseHeader(bytes));
    KVG_ASSIGN(const std::vector<SectionEntry> entries, ParseTable(bytes, header));
    KVG_RETURN(CheckSections(entries));
    KVG_RETURN(VerifySections(bytes, entries));
    KVG_RETURN(ReadParts(bytes, entries, &reader.parts_));
    const SectionEntry& pages = *FindSection(entries, SectionKind::kPages);
    reader.pages_ = UnpackU64(Payload(bytes, pages));
    reader.page_bytes_ = static_cast<uint32_t>(pages.parameter);
    reader.image_ = Payload(bytes, *FindSection(entries, SectionKind::kImage));
    return Status::Ok();
  };
  KVG_RETURN(load().Annotate(what));
  reader.bytes_ = bytes;
  reader.what_ = std::move(what);
  return reader;
}

Status Reader::VerifyPages(unsigned n_threads) const {
  std::atomic<uint64_t> first_bad{pages_.size()};
  // A thread ends at its first bad page; the pages before it are taken already, so that the first
  // of all is found.
  const Status seen_all = OverThreads(pages_.size(), n_threads, [&](size_t i) {
    const uint64_t at = i * page_bytes_;
    const uint64_t n = std::min<uint64_t>(page_bytes_, image_.size() - at);
    const ByteSpan page = image_.subspan(static_cast<size_t>(at), static_cast<size_t>(n));
    file_.Prefetch(page);
    if (Xxh3(page) == pages_[i]) return Status::Ok();
    uint64_t seen = first_bad.load();
    while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
    }
    return Status(Code::kCorrupt, "");
  });
  if (seen_all.ok()) return Status::Ok();
  const uint64_t bad = first_bad.load();
  return Corrupt(
      fmt::format("{}: image page {} of {} (bytes {} to {} of the image) does not match "
                  "its checksum, the file is damaged",
                  what_, bad, pages_.size(), bad * page_bytes_,
                  std::min<uint64_t>((bad + 1) * page_bytes_, image_.size())));
}

Status Reader::VerifyContent() const {
  const Manifest& m = parts_.manifest;
  const std::string id =
      ContentId(m.identity, parts_.tokens, parts_.positions, m.n_image_tokens, image_);
  if (id == m.id) return Status::Ok();
  return Corrupt(
      fmt::format("{}: the content's SHA-256 is {}, the manifest says {}", what_, id, m.id));
}

}  // namespace kvgraft::artifact
