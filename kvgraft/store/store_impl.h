// The local store: a Folder, which is the truth, a Catalog, which is an index over it, and a lock.
//
// Functions that end in Locked are called with the store's lock held and never take it. Readers
// take no lock; what they find wrong in the index they collect in a Heal, which is applied when the
// lock happens to be free and otherwise left for whoever finds it next.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvgraft/store/catalog.h"
#include "kvgraft/store/folder.h"
#include "kvgraft/store/gc.h"
#include "kvgraft/store/lock.h"
#include "kvgraft/store/store.h"

namespace kvgraft::store {

class StoreImpl final : public Store {
 public:
  static Result<std::unique_ptr<Store>> Open(const StoreOptions& options);

  const StoreOptions& options() const override { return options_; }
  std::vector<std::string> warnings() const override;
  Status Reserve(uint64_t bytes) override;
  Result<Entry> Put(artifact::Parts& parts, ByteSpan image, std::string_view name) override;
  Result<Entry> Import(const std::string& path, std::string_view name) override;
  Status Export(std::string_view ref, const std::string& path, bool force) override;
  Result<Entry> Find(std::string_view ref) override;
  Result<artifact::Reader> OpenArtifact(const Entry& entry) override;
  Status MarkUsed(const Entry& entry) override { return folder_.Touch(entry.id); }
  std::string ObjectPath(std::string_view id) const override { return folder_.ObjectPath(id); }
  Result<std::optional<Entry>> FindLongestPrefix(std::string_view compat_id,
                                                 std::span<const int32_t> tokens) override;
  Result<std::vector<Entry>> List() override;
  Status SetName(std::string_view ref, std::string_view name) override;
  Status SetPinned(std::string_view ref, bool pinned) override;
  Result<Entry> Remove(std::string_view ref) override;
  Status Quarantine(std::string_view id, std::string_view reason) override;
  Result<GcReport> Gc(bool dry_run) override;
  Result<RebuildReport> Rebuild() override;
  Result<uint64_t> UsedBytes() override { return folder_.Scan().bytes; }

 private:
  // What a reader found to differ between the index and the folder.
  struct Heal {
    std::vector<CatalogRow> rows;     // files that the index does not know, or knows otherwise
    std::vector<std::string> broken;  // ids whose file does not verify
    bool sync = false;                // rows without a file: compare all
    bool damaged = false;             // the catalog itself
  };

  StoreImpl(const StoreOptions& options, Folder folder)
      : options_(options), folder_(std::move(folder)), temp_(folder_.Path("tmp")) {}

  // Waits, then does what Open had to leave undone.
  Result<StoreLock::Guard> LockForChange();
  void Apply(const Heal& heal);
  void ApplyLocked(const Heal& heal);
  // The open catalog, opened again when another process has made it anew.
  Result<std::shared_ptr<Catalog>> GetCatalog();
  // Best effort: what the index misses is found again from the files.
  void IndexLocked(const std::vector<CatalogRow>& rows, const std::vector<std::string>& erased);

  // Reading (store.cc)
  Result<std::string> ResolveId(std::string_view ref, Heal* heal);
  Status NothingCalled(std::string_view ref) const;
  // Reads the row of an object from its own header. kCorrupt when it is not what its name says.
  Result<CatalogRow> ReadRow(std::string_view id) const;
  Result<Entry> MakeEntry(const ObjectFile& object, const NameMap& names, Heal* heal);
  Result<Entry> FindEntry(std::string_view ref, Heal* heal);
  std::vector<Entry> ListEntries(const FolderScan& scan, Heal* heal);
  Result<std::optional<Entry>> LookUpPrefix(std::string_view compat_id,
                                            std::span<const int32_t> tokens, Heal* heal);

  // Writing (store_write.cc)
  Result<Entry> FinishPutLocked(const std::string& id, const CatalogRow* row,
                                std::string_view name);
  // True when the object is there and sound; one that is not goes to quarantine.
  // `tier`, if not null: that of a sound one.
  bool HasSoundObjectLocked(const std::string& id, std::string* tier = nullptr);
  Status RemoveArtifactLocked(const std::string& id, const std::vector<std::string>& names);

  // Keeping order (maintain.cc)
  void OpenCatalogLocked();
  void SyncLocked();
  void MaintainLocked();
  void Warn(std::string text);
  Result<uint64_t> FreeBytes() const;
  std::vector<Candidate> Candidates(const FolderScan& scan);
  Status EvictLocked(const std::vector<ObjectFile>& objects, GcReport* report);
  Status ReserveLocked(uint64_t bytes);
  Status QuarantineLocked(std::string_view id, std::string_view reason);

  const StoreOptions options_;
  const Folder folder_;
  mutable std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  std::unique_ptr<StoreLock> lock_;
  TempFolder temp_;
  std::atomic<bool> maintained_{false};
  std::mutex catalog_mutex_;
  std::shared_ptr<Catalog> catalog_;
};

// SHA-256 over the tokens as little-endian i32.
std::string TokensSha256(std::span<const int32_t> tokens);
CatalogRow RowOf(const artifact::Manifest& manifest, std::span<const int32_t> tokens,
                 uint64_t file_bytes);

}  // namespace kvgraft::store
