#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/artifact/layout.h"
#include "kvgraft/artifact/manifest.h"
#include "kvgraft/artifact/pack.h"
#include "kvgraft/core/hash.h"

namespace kvgraft::artifact {
namespace {

// Everything of a file but the image: entries in file order, and the payload of each (empty for
// the image, which is not copied).
struct Plan {
  std::vector<SectionEntry> entries;
  std::vector<ByteSpan> payloads;
  std::vector<std::vector<uint8_t>> owned;  // what payloads points to, text apart
  std::string manifest_json;
  uint64_t file_bytes = 0;

  void Add(SectionKind kind, uint32_t flags, ByteSpan payload, uint64_t bytes, uint64_t checksum,
           uint64_t parameter = 0) {
    entries.push_back({.kind = static_cast<uint32_t>(kind),
                       .flags = flags,
                       .bytes = bytes,
                       .checksum = checksum,
                       .parameter = parameter});
    payloads.push_back(payload);
  }
  void AddOwned(SectionKind kind, std::vector<uint8_t> bytes, uint64_t parameter = 0) {
    owned.push_back(std::move(bytes));  // moving the outer vector keeps the inner buffers in place
    const ByteSpan view = owned.back();
    Add(kind, kFlagRequired, view, view.size(), Xxh3(view), parameter);
  }
};

Status Bad(std::string message) {
  return Status(Code::kInvalidArgument, "artifact: " + std::move(message));
}

bool AnyNegative(const std::vector<int32_t>& values) {
  return std::any_of(values.begin(), values.end(), [](int32_t v) { return v < 0; });
}

bool IsCounting(const std::vector<int32_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

Status CheckParts(const Parts& parts, uint64_t image_bytes, const WriteOptions& options) {
  const Manifest& m = parts.manifest;
  if (options.version < kOldestVersion || options.version > kFormatVersion) {
    return Status(Code::kUnsupported,
                  fmt::format("artifact: cannot write format version {}, only {} to {}",
                              options.version, kOldestVersion, kFormatVersion));
  }
  const uint32_t page = options.page_bytes;
  if (page < kMinPageBytes || page > kMaxPageBytes || (page & (page - 1)) != 0) {
    return Bad(fmt::format("page size {}, expected a power of two from {} to {}", page,
                           kMinPageBytes, kMaxPageBytes));
  }
  if (m.n_tokens != parts.tokens.size()) {
    return Bad(
        fmt::format("n_tokens is {}, but there are {} tokens", m.n_tokens, parts.tokens.size()));
  }
  if (!parts.positions.empty() && parts.positions.size() != m.n_image_tokens) {
    return Bad(fmt::format("{} positions for {} tokens in the image", parts.positions.size(),
                           m.n_image_tokens));
  }
  if (AnyNegative(parts.tokens)) return Bad("a negative token");
  if (AnyNegative(parts.positions)) return Bad("a negative position");
  if (parts.text.size() > kMaxTextBytes) {
    return Bad(fmt::format("text of {}, the limit is {}", FormatBytes(parts.text.size()),
                           FormatBytes(kMaxTextBytes)));
  }
  if (image_bytes == 0) return Bad("an empty image");
  if (image_bytes > kMaxFileBytes / 2) {
    return Bad(fmt::format("image of {} is too large", FormatBytes(image_bytes)));
  }
  return Status::Ok();
}

// Puts the entries in their places. `pages` may be zeros when only the size matters.
Result<Plan> MakePlan(const Parts& parts, const Manifest& manifest, uint64_t image_bytes,
                      std::vector<uint64_t> pages, const WriteOptions& options) {
  Plan plan;
  KVG_ASSIGN(plan.manifest_json, ManifestToJson(manifest));
  const ByteSpan json = AsBytes(plan.manifest_json);
  plan.AddOwned(SectionKind::kManifest, std::vector<uint8_t>(json.begin(), json.end()));
  plan.AddOwned(SectionKind::kTokens, PackI32(parts.tokens));
  if (!IsCounting(parts.positions)) {
    plan.AddOwned(SectionKind::kPositions, PackI32(parts.positions));
  }
  if (!parts.text.empty()) {
    const ByteSpan text = AsBytes(parts.text);
    plan.Add(SectionKind::kText, 0, text, text.size(), Xxh3(text));
  }
  plan.AddOwned(SectionKind::kPages, PackU64(pages), options.page_bytes);
  plan.Add(SectionKind::kImage, kFlagRequired, {}, image_bytes, 0);

  uint64_t end = kHeaderBytes + plan.entries.size() * kEntryBytes;
  for (SectionEntry& e : plan.entries) {
    e.offset = Align64(end);
    end = e.offset + e.bytes;
  }
  plan.file_bytes = end;
  return plan;
}

using Sink = std::function<Status(ByteSpan)>;

Status Emit(const Plan& plan, ByteSpan image, const WriteOptions& options, const Sink& sink) {
  const std::vector<uint8_t> head =
      EncodeHead({.version = options.version, .file_bytes = plan.file_bytes}, plan.entries);
  KVG_RETURN(sink(head));
  static constexpr uint8_t kZeros[kAlignment] = {};
  uint64_t at = head.size();
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const SectionEntry& e = plan.entries[i];
    KVG_RETURN(sink(ByteSpan(kZeros).first(static_cast<size_t>(e.offset - at))));
    const bool is_image = e.kind == static_cast<uint32_t>(SectionKind::kImage);
    KVG_RETURN(sink(is_image ? image : plan.payloads[i]));
    at = e.offset + e.bytes;
  }
  return Status::Ok();
}

uint64_t CountPages(uint64_t image_bytes, uint32_t page_bytes) {
  return (image_bytes + page_bytes - 1) / page_bytes;
}

std::vector<uint64_t> HashPages(ByteSpan image, uint32_t page_bytes) {
  std::vector<uint64_t> pages;
  pages.reserve(CountPages(image.size(), page_bytes));
  for (size_t at = 0; at < image.size(); at += page_bytes) {
    pages.push_back(Xxh3(image.subspan(at, std::min<size_t>(page_bytes, image.size() - at))));
  }
  return pages;
}

// Checks, completes the manifest's id, and plans the file.
Result<Plan> Prepare(Parts& parts, ByteSpan image, const WriteOptions& options) {
  KVG_RETURN(CheckParts(parts, image.size(), options));
  Manifest& m = parts.manifest;
  KVG_RETURN(CheckIdentity(m.identity));  // ContentId needs it sorted
  const std::string id =
      ContentId(m.identity, parts.tokens, parts.positions, m.n_image_tokens, image);
  if (!m.id.empty() && m.id != id) {
    return Bad(fmt::format("the manifest's id is {}, the content's is {}", m.id, id));
  }
  Manifest complete = m;
  complete.id = id;
  KVG_ASSIGN(Plan plan, MakePlan(parts, complete, image.size(),
                                 HashPages(image, options.page_bytes), options));
  m.id = id;
  return plan;
}

}  // namespace

Result<uint64_t> FileBytes(const Parts& parts, uint64_t image_bytes, const WriteOptions& options) {
  KVG_RETURN(CheckParts(parts, image_bytes, options));
  Manifest m = parts.manifest;
  if (m.id.empty()) m.id.assign(64, '0');
  KVG_ASSIGN(const Plan plan,
             MakePlan(parts, m, image_bytes,
                      std::vector<uint64_t>(CountPages(image_bytes, options.page_bytes)), options));
  return plan.file_bytes;
}

Status Write(Parts& parts, ByteSpan image, AtomicFile& out, const WriteOptions& options) {
  if (out.size() != 0) return Bad("the output file is not empty");
  KVG_ASSIGN(const Plan plan, Prepare(parts, image, options));
  KVG_RETURN(out.Reserve(plan.file_bytes));
  return Emit(plan, image, options, [&out](ByteSpan bytes) { return out.Append(bytes); });
}

Result<std::vector<uint8_t>> Encode(Parts& parts, ByteSpan image, const WriteOptions& options) {
  KVG_ASSIGN(const Plan plan, Prepare(parts, image, options));
  std::vector<uint8_t> file;
  file.reserve(static_cast<size_t>(plan.file_bytes));
  KVG_RETURN(Emit(plan, image, options, [&file](ByteSpan bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return Status::Ok();
  }));
  return file;
}

}  // namespace kvgraft::artifact
