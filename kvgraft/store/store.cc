#include "kvgraft/store/store.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "kvgraft/core/hash.h"
#include "kvgraft/store/store_impl.h"

namespace kvgraft::store {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLockWait(120'000);
constexpr milliseconds kOpenWait(1'000);
constexpr size_t kMinPrefixDigits = 6;
constexpr int64_t kNsPerSecond = 1'000'000'000;

bool IsHex(std::string_view s) {
  return std::all_of(s.begin(), s.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Lower(std::string_view s) {
  std::string lower(s);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

std::string TokensSha256(std::span<const int32_t> tokens) {
  if constexpr (std::endian::native == std::endian::little) {
    return Sha256Hex(
        ByteSpan(reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()));
  }
  ByteWriter bytes;
  for (int32_t token : tokens) bytes.I32(token);
  return Sha256Hex(bytes.bytes());
}

CatalogRow RowOf(const artifact::Manifest& manifest, std::span<const int32_t> tokens,
                 uint64_t file_bytes) {
  return CatalogRow{.id = manifest.id,
                    .file_bytes = file_bytes,
                    .n_tokens = tokens.size(),
                    .n_image_tokens = manifest.n_image_tokens,
                    .compat_id = manifest.identity.CompatId(),
                    .tokens_sha256 = TokensSha256(tokens),
                    .tier = manifest.tier,
                    .model_name = manifest.model_name,
                    .created = manifest.created,
                    .parent = manifest.parent};
}

Result<std::unique_ptr<Store>> Store::Open(const StoreOptions& options) {
  return StoreImpl::Open(options);
}

Result<std::unique_ptr<Store>> StoreImpl::Open(const StoreOptions& options) {
  std::vector<std::string> warnings;
  KVG_ASSIGN(Folder folder, Folder::Open(options.root, &warnings));
  std::unique_ptr<StoreImpl> store(new StoreImpl(options, std::move(folder)));
  store->warnings_ = std::move(warnings);
  KVG_ASSIGN(store->lock_, StoreLock::Open(store->folder_.Path("lock")));
  // A listing must not wait for another process that writes gigabytes, as long as there is an
  // index.
  Result<StoreLock::Guard> guard = store->lock_->Acquire(kOpenWait);
  if (guard.ok()) {
    store->MaintainLocked();
  } else if (!store->GetCatalog().ok()) {
    KVG_ASSIGN(const StoreLock::Guard waited, store->LockForChange());
  }
  return std::unique_ptr<Store>(std::move(store));
}

Result<StoreLock::Guard> StoreImpl::LockForChange() {
  KVG_ASSIGN(StoreLock::Guard guard, lock_->Acquire(kLockWait));
  if (!maintained_) MaintainLocked();
  return guard;
}

Result<std::shared_ptr<Catalog>> StoreImpl::GetCatalog() {
  const std::lock_guard<std::mutex> lock(catalog_mutex_);
  if (catalog_ != nullptr && catalog_->IsCurrent()) return catalog_;
  KVG_ASSIGN(std::unique_ptr<Catalog> opened, Catalog::Open(folder_.Path("catalog.sqlite")));
  catalog_ = std::move(opened);
  return catalog_;
}

void StoreImpl::Apply(const Heal& heal) {
  if (heal.rows.empty() && heal.broken.empty() && !heal.sync && !heal.damaged) return;
  const Result<StoreLock::Guard> guard = lock_->Acquire(milliseconds(0));
  if (guard.ok()) ApplyLocked(heal);
}

void StoreImpl::ApplyLocked(const Heal& heal) {
  // Everything is looked at again: it may have changed before the lock was taken.
  for (const std::string& id : heal.broken) {
    const Result<CatalogRow> row = ReadRow(id);
    if (row.ok() || row.status().code() != Code::kCorrupt) continue;
    const Status moved = QuarantineLocked(id, row.status().message());
    if (!moved.ok()) continue;
  }
  if (heal.damaged) OpenCatalogLocked();
  if (heal.sync || heal.damaged) SyncLocked();
  std::vector<CatalogRow> rows;
  for (const CatalogRow& row : heal.rows) {
    const std::optional<ObjectFile> object = folder_.Stat(row.id);
    if (object.has_value() && object->bytes == row.file_bytes) rows.push_back(row);
  }
  IndexLocked(rows, {});
}

void StoreImpl::IndexLocked(const std::vector<CatalogRow>& rows,
                            const std::vector<std::string>& erased) {
  Result<std::shared_ptr<Catalog>> catalog = GetCatalog();
  Status applied = catalog.ok() ? (*catalog)->Apply(rows, erased) : catalog.status();
  if (applied.ok() || applied.code() != Code::kCorrupt) return;
  OpenCatalogLocked();
  SyncLocked();
}

Result<CatalogRow> StoreImpl::ReadRow(std::string_view id) const {
  KVG_ASSIGN(const artifact::Reader reader, artifact::Reader::Open(folder_.ObjectPath(id)));
  if (reader.manifest().id != id) {
    return Status(Code::kCorrupt, folder_.ObjectPath(id) + ": holds artifact " +
                                      reader.manifest().id + ", not the one its name says");
  }
  return RowOf(reader.manifest(), reader.tokens(), reader.file_bytes());
}

Result<Entry> StoreImpl::MakeEntry(const ObjectFile& object, const NameMap& names, Heal* heal) {
  std::optional<CatalogRow> row;
  Result<std::shared_ptr<Catalog>> catalog = GetCatalog();
  Status status = catalog.status();
  if (catalog.ok()) {
    Result<std::optional<CatalogRow>> found = (*catalog)->Get(object.id);
    status = found.status();
    if (found.ok()) row = std::move(found).value();
  }
  if (status.code() == Code::kCorrupt) heal->damaged = true;
  if (!row.has_value() || row->file_bytes != object.bytes) {
    Result<CatalogRow> read = ReadRow(object.id);
    if (!read.ok()) {
      if (read.status().code() == Code::kCorrupt) heal->broken.push_back(object.id);
      if (read.status().code() == Code::kNotFound) heal->sync = true;
      return read.status();
    }
    row = std::move(read).value();
    heal->rows.push_back(*row);
  }
  Entry entry{.id = object.id,
              .file_bytes = object.bytes,
              .n_tokens = row->n_tokens,
              .n_image_tokens = row->n_image_tokens,
              .compat_id = row->compat_id,
              .tier = row->tier,
              .model_name = row->model_name,
              .created = row->created,
              .last_used_unix = object.used_ns / kNsPerSecond,
              .pinned = folder_.IsPinned(object.id),
              .parent = row->parent};
  const auto [begin, end] = names.equal_range(object.id);
  for (auto it = begin; it != end; ++it) entry.names.push_back(it->second);
  return entry;
}

Status StoreImpl::NothingCalled(std::string_view ref) const {
  constexpr size_t kShown = 8;
  std::vector<std::string> there;
  for (const auto& [id, name] : folder_.ReadNames()) {
    if (folder_.Stat(id).has_value()) there.push_back(name);
  }
  std::sort(there.begin(), there.end());
  std::string message =
      "store: no artifact called \"" + std::string(ref) + "\" in " + folder_.root() + "; ";
  const size_t n_objects = folder_.Scan().objects.size();
  if (there.empty()) {
    message += n_objects == 0 ? "the store is empty"
                              : "it holds " + std::to_string(n_objects) + " without a name";
  } else {
    message += "names there: ";
    for (size_t i = 0; i < std::min(kShown, there.size()); ++i) {
      message += (i == 0 ? "" : ", ") + there[i];
    }
    if (there.size() > kShown) {
      message += " and " + std::to_string(there.size() - kShown) + " more";
    }
  }
  return Status(Code::kNotFound, message);
}

Result<std::string> StoreImpl::ResolveId(std::string_view ref, Heal* heal) {
  if (const std::optional<std::string> id = folder_.ReadName(ref)) {
    if (folder_.Stat(*id).has_value()) return *id;
    heal->sync = true;
    return Status(Code::kNotFound, "store: the file of \"" + std::string(ref) + "\" (" +
                                       id->substr(0, 12) + ") is gone; capture it again");
  }
  const std::string hex = Lower(ref);
  if (hex.size() < kMinPrefixDigits || hex.size() > 64 || !IsHex(hex)) {
    KVG_RETURN(CheckName(ref));
    return NothingCalled(ref);
  }
  std::vector<std::string> ids = folder_.IdsWithPrefix(hex);
  if (ids.size() == 1) return std::move(ids.front());
  if (ids.empty()) {
    heal->sync = true;
    return NothingCalled(ref);
  }
  std::string message = "store: \"" + std::string(ref) + "\" fits " + std::to_string(ids.size()) +
                        " artifacts, give more digits:";
  for (size_t i = 0; i < std::min<size_t>(ids.size(), 8); ++i) message += " " + ids[i];
  return Status(Code::kInvalidArgument, message);
}

Result<Entry> StoreImpl::FindEntry(std::string_view ref, Heal* heal) {
  KVG_ASSIGN(const std::string id, ResolveId(ref, heal));
  const std::optional<ObjectFile> object = folder_.Stat(id);
  if (!object.has_value()) return NothingCalled(ref);
  return MakeEntry(*object, folder_.ReadNames(), heal);
}

Result<Entry> StoreImpl::Find(std::string_view ref) {
  Heal heal;
  Result<Entry> entry = FindEntry(ref, &heal);
  Apply(heal);
  return entry;
}

Result<artifact::Reader> StoreImpl::OpenArtifact(const Entry& entry) {
  Heal heal;
  if (!folder_.Stat(entry.id).has_value()) {
    heal.sync = true;
    Apply(heal);
    return Status(Code::kNotFound, "store: the file of artifact " + entry.id.substr(0, 12) +
                                       " is gone (evicted or removed); capture it again");
  }
  Result<artifact::Reader> reader = artifact::Reader::Open(folder_.ObjectPath(entry.id));
  Status status = reader.status();
  if (reader.ok() && reader->manifest().id != entry.id) {
    status = Status(Code::kCorrupt, folder_.ObjectPath(entry.id) + ": holds artifact " +
                                        reader->manifest().id + ", not the one its name says");
  }
  if (!status.ok()) {
    if (status.code() == Code::kCorrupt) heal.broken.push_back(entry.id);
    if (status.code() == Code::kNotFound) heal.sync = true;
    Apply(heal);
    return status;
  }
  // A store that cannot be written to still serves; then the order of eviction is a little off.
  const Status touched = folder_.Touch(entry.id);
  (void)touched;
  return reader;
}

std::vector<Entry> StoreImpl::ListEntries(const FolderScan& scan, Heal* heal) {
  std::vector<ObjectFile> objects = scan.objects;
  std::sort(objects.begin(), objects.end(), [](const ObjectFile& a, const ObjectFile& b) {
    return a.used_ns != b.used_ns ? a.used_ns > b.used_ns : a.id < b.id;
  });
  const NameMap names = folder_.ReadNames();
  std::vector<Entry> entries;
  for (const ObjectFile& object : objects) {
    Result<Entry> entry = MakeEntry(object, names, heal);
    if (entry.ok()) entries.push_back(std::move(entry).value());
  }
  return entries;
}

Result<std::vector<Entry>> StoreImpl::List() {
  Heal heal;
  std::vector<Entry> entries = ListEntries(folder_.Scan(), &heal);
  Apply(heal);
  return entries;
}

Result<std::optional<Entry>> StoreImpl::LookUpPrefix(std::string_view compat_id,
                                                     std::span<const int32_t> tokens, Heal* heal) {
  KVG_ASSIGN(const std::shared_ptr<Catalog> catalog, GetCatalog());
  KVG_ASSIGN(const std::vector<uint64_t> counts,
             catalog->TokenCounts(compat_id, "exact", tokens.size()));
  for (const uint64_t n_tokens : counts) {
    if (n_tokens == 0 || n_tokens > tokens.size()) continue;
    const std::span<const int32_t> prefix = tokens.first(n_tokens);
    KVG_ASSIGN(const std::vector<std::string> ids,
               catalog->IdsByTokens(compat_id, "exact", n_tokens, TokensSha256(prefix)));
    for (const std::string& id : ids) {
      // The row only proposes; the file decides, token by token.
      const std::optional<ObjectFile> object = folder_.Stat(id);
      if (!object.has_value()) {
        heal->sync = true;
        continue;
      }
      const Result<artifact::Reader> reader = artifact::Reader::Open(folder_.ObjectPath(id));
      if (!reader.ok()) {
        if (reader.status().code() == Code::kCorrupt) heal->broken.push_back(id);
        continue;
      }
      const artifact::Manifest& manifest = reader->manifest();
      if (manifest.id != id) {
        heal->broken.push_back(id);
        continue;
      }
      if (manifest.tier != "exact" || manifest.identity.CompatId() != compat_id ||
          !std::equal(prefix.begin(), prefix.end(), reader->tokens().begin(),
                      reader->tokens().end())) {
        heal->rows.push_back(RowOf(manifest, reader->tokens(), reader->file_bytes()));
        continue;
      }
      Result<Entry> entry = MakeEntry(*object, folder_.ReadNames(), heal);
      if (entry.ok()) return std::optional<Entry>(std::move(entry).value());
    }
  }
  return std::optional<Entry>();
}

Result<std::optional<Entry>> StoreImpl::FindLongestPrefix(std::string_view compat_id,
                                                          std::span<const int32_t> tokens) {
  Heal heal;
  Result<std::optional<Entry>> found = LookUpPrefix(compat_id, tokens, &heal);
  if (!found.ok() && found.status().code() == Code::kCorrupt) {
    KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
    OpenCatalogLocked();
    SyncLocked();
    found = LookUpPrefix(compat_id, tokens, &heal);
    ApplyLocked(heal);
    return found;
  }
  Apply(heal);
  return found;
}

}  // namespace kvgraft::store
