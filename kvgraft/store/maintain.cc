// What keeps the store in order: index and folder in step, room, quarantine, rebuild.
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "kvgraft/core/file.h"
#include "kvgraft/store/store_impl.h"

namespace kvgraft::store {

void StoreImpl::OpenCatalogLocked() {
  const std::string path = folder_.Path("catalog.sqlite");
  Result<std::unique_ptr<Catalog>> catalog = Catalog::Open(path);
  if (!catalog.ok() && catalog.status().code() == Code::kCorrupt) catalog = Catalog::Create(path);
  // A disk that is full, or does not let us write, must not keep the artifacts from being used.
  if (!catalog.ok()) catalog = Catalog::InMemory();
  const std::lock_guard<std::mutex> lock(catalog_mutex_);
  catalog_ = catalog.ok() ? std::shared_ptr<Catalog>(std::move(catalog).value()) : nullptr;
}

void StoreImpl::SyncLocked() {
  const FolderScan scan = folder_.Scan();
  if (!scan.strange.empty()) {
    const Result<std::string> temp = temp_.Path();
    for (const std::string& path : scan.strange) {
      const Status moved = folder_.MoveToQuarantine(
          path, "not a plain file named by an artifact id", temp.ok() ? *temp : "");
      (void)moved;  // never listed either way
    }
  }
  Result<std::shared_ptr<Catalog>> catalog = GetCatalog();
  if (!catalog.ok()) return;
  const Result<std::vector<CatalogRow>> rows = (*catalog)->All();
  std::map<std::string, uint64_t> known;
  if (rows.ok()) {
    for (const CatalogRow& row : *rows) known.emplace(row.id, row.file_bytes);
  }
  std::vector<CatalogRow> upserts;
  for (const ObjectFile& object : scan.objects) {
    const auto it = known.find(object.id);
    const bool same = it != known.end() && it->second == object.bytes;
    if (it != known.end()) known.erase(it);
    if (same) continue;
    Result<CatalogRow> row = ReadRow(object.id);
    if (row.ok()) {
      upserts.push_back(std::move(row).value());
    } else if (row.status().code() == Code::kCorrupt) {
      const Status moved = QuarantineLocked(object.id, row.status().message());
      (void)moved;
    }
  }
  std::vector<std::string> gone;
  for (const auto& [id, bytes] : known) gone.push_back(id);
  const Status applied = (*catalog)->Apply(upserts, gone);
  (void)applied;  // what is not indexed is read from the files
}

void StoreImpl::MaintainLocked() {
  maintained_ = true;
  if (!options_.evict_at_open) {
    OpenCatalogLocked();
    SyncLocked();
    return;
  }
  const Result<std::vector<std::string>> removed =
      TempFolder::RemoveStale(folder_.Path("tmp"), /*dry_run=*/false);
  (void)removed;
  OpenCatalogLocked();
  SyncLocked();
  const Result<uint64_t> free = FreeBytes();
  const Limits limits{options_.budget_bytes, free.ok() ? options_.free_floor_bytes : 0};
  const std::vector<ObjectFile> plan =
      PlanStart(Candidates(folder_.Scan()), limits, free.ok() ? *free : 0);
  GcReport report;
  const Status evicted = EvictLocked(plan, &report);
  (void)evicted;  // tried again by the next Reserve
  if (report.evicted.empty()) return;
  uint64_t bytes = 0;
  for (const Entry& entry : report.evicted) bytes += entry.file_bytes;
  Warn("the store was over its limits: evicted " + std::to_string(report.evicted.size()) +
       " least recently used, " + FormatBytes(bytes));
}

void StoreImpl::Warn(std::string text) {
  const std::lock_guard<std::mutex> lock(warnings_mutex_);
  warnings_.push_back(std::move(text));
}

std::vector<std::string> StoreImpl::warnings() const {
  const std::lock_guard<std::mutex> lock(warnings_mutex_);
  return warnings_;
}

Result<uint64_t> StoreImpl::FreeBytes() const {
  if (options_.free_bytes) return options_.free_bytes(folder_.root());
  struct statvfs info;
  if (::statvfs(folder_.root().c_str(), &info) != 0) {
    return ErrnoStatus("ask for the free space of", folder_.root(), errno);
  }
  return uint64_t{info.f_bavail} * info.f_frsize;
}

std::vector<Candidate> StoreImpl::Candidates(const FolderScan& scan) {
  const std::vector<std::string> pins = folder_.ReadPins();
  std::vector<Candidate> candidates;
  for (const ObjectFile& object : scan.objects) {
    const bool pinned = std::binary_search(pins.begin(), pins.end(), object.id);
    candidates.push_back({object, pinned, false});
    if (pinned || !options_.evict_first) continue;
    Heal ignored;
    const Result<Entry> entry = MakeEntry(object, {}, &ignored);
    candidates.back().first = entry.ok() && options_.evict_first(*entry);
  }
  return candidates;
}

Status StoreImpl::EvictLocked(const std::vector<ObjectFile>& objects, GcReport* report) {
  if (objects.empty()) return Status::Ok();
  const NameMap names = folder_.ReadNames();
  for (const ObjectFile& object : objects) {
    Heal ignored;
    Result<Entry> entry = MakeEntry(object, names, &ignored);
    if (!entry.ok()) {
      entry = Entry{.id = object.id, .file_bytes = object.bytes};
      const auto [begin, end] = names.equal_range(object.id);
      for (auto it = begin; it != end; ++it) entry->names.push_back(it->second);
    }
    KVG_RETURN(RemoveArtifactLocked(object.id, entry->names));
    if (report != nullptr) report->evicted.push_back(std::move(entry).value());
  }
  return Status::Ok();
}

Status StoreImpl::ReserveLocked(uint64_t bytes) {
  KVG_ASSIGN(const uint64_t free, FreeBytes());
  const Limits limits{options_.budget_bytes, options_.free_floor_bytes};
  KVG_ASSIGN(const std::vector<ObjectFile> plan,
             PlanRoom(Candidates(folder_.Scan()), limits, free, bytes));
  if (plan.empty()) return Status::Ok();
  KVG_RETURN(EvictLocked(plan, nullptr));
  // Space of files that somebody still has open comes back only when they close them.
  KVG_ASSIGN(const uint64_t free_now, FreeBytes());
  if (free_now < options_.free_floor_bytes || free_now - options_.free_floor_bytes < bytes) {
    return Status(Code::kExhausted, "store: no room for " + FormatBytes(bytes) +
                                        ": evicted artifacts are still open "
                                        "in other programs, free on disk " +
                                        FormatBytes(free_now) + ", to stay free " +
                                        FormatBytes(options_.free_floor_bytes));
  }
  return Status::Ok();
}

Status StoreImpl::Reserve(uint64_t bytes) {
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  return ReserveLocked(bytes);
}

Status StoreImpl::QuarantineLocked(std::string_view id, std::string_view reason) {
  const std::optional<ObjectFile> object = folder_.Stat(id);
  if (!object.has_value()) {
    return Status(Code::kNotFound, "store: no artifact " + std::string(id) + " to move aside");
  }
  const std::vector<std::string> names = folder_.NamesOf(id);
  std::string text(reason);
  for (const std::string& name : names) text += "\nname: " + name;
  const Result<std::string> temp = temp_.Path();
  KVG_RETURN(folder_.MoveToQuarantine(folder_.ObjectPath(id), text, temp.ok() ? *temp : ""));
  IndexLocked({}, {std::string(id)});
  for (const std::string& name : names) KVG_RETURN(folder_.RemoveName(name));
  Warn("artifact " + std::string(id.substr(0, 12)) + " was moved to " + folder_.Path("quarantine") +
       ": " + std::string(reason));
  return folder_.SetPinned(id, false, "");
}

Status StoreImpl::Quarantine(std::string_view id, std::string_view reason) {
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  return QuarantineLocked(id, reason);
}

Result<GcReport> StoreImpl::Gc(bool dry_run) {
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  GcReport report;
  KVG_ASSIGN(report.removed_temp, TempFolder::RemoveStale(folder_.Path("tmp"), dry_run));
  if (!dry_run) SyncLocked();
  const FolderScan scan = folder_.Scan();
  KVG_ASSIGN(const uint64_t free, FreeBytes());
  const Limits limits{options_.budget_bytes, options_.free_floor_bytes};
  const std::vector<ObjectFile> plan = PlanStart(Candidates(scan), limits, free);
  for (const ObjectFile& object : plan) report.bytes_freed += object.bytes;
  report.bytes_used = scan.bytes - report.bytes_freed;
  const NameMap names = folder_.ReadNames();
  if (dry_run) {
    for (const ObjectFile& object : plan) {
      Heal ignored;
      Result<Entry> entry = MakeEntry(object, names, &ignored);
      report.evicted.push_back(entry.ok() ? std::move(entry).value()
                                          : Entry{.id = object.id, .file_bytes = object.bytes});
    }
    return report;
  }
  KVG_RETURN(EvictLocked(plan, &report));
  // Names and pins whose artifact is gone.
  for (const auto& [id, name] : names) {
    if (!folder_.Stat(id).has_value()) KVG_RETURN(folder_.RemoveName(name));
  }
  for (const std::string& id : folder_.ReadPins()) {
    if (!folder_.Stat(id).has_value()) KVG_RETURN(folder_.SetPinned(id, false, ""));
  }
  return report;
}

Result<RebuildReport> StoreImpl::Rebuild() {
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  RebuildReport report;
  const FolderScan scan = folder_.Scan();
  for (const std::string& path : scan.strange) {
    report.quarantined.push_back(path + ": not a plain file named by an artifact id");
  }
  for (const ObjectFile& object : scan.objects) {
    const std::string path = folder_.ObjectPath(object.id);
    Status status;
    {
      const Result<artifact::Reader> reader = artifact::Reader::Open(path);
      status = reader.ok() ? reader->VerifyPages() : reader.status();
      if (status.ok() && reader->manifest().id != object.id) {
        status = Status(Code::kCorrupt, "holds artifact " + reader->manifest().id);
      }
    }
    if (status.ok()) ++report.entries;
    if (status.code() != Code::kCorrupt) continue;
    KVG_RETURN(QuarantineLocked(object.id, status.message()));
    report.quarantined.push_back(path + ": " + status.message());
  }
  // From nothing, so that no row of the old index survives.
  {
    Result<std::unique_ptr<Catalog>> fresh = Catalog::Create(folder_.Path("catalog.sqlite"));
    if (!fresh.ok()) fresh = Catalog::InMemory();
    if (!fresh.ok()) return fresh.status();
    const std::lock_guard<std::mutex> lock(catalog_mutex_);
    catalog_ = std::move(fresh).value();
  }
  SyncLocked();
  return report;
}

}  // namespace kvgraft::store
