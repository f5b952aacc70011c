// A folder of artifacts that describe themselves, and a SQLite catalog over them that can be thrown
// away and rebuilt at any time. Several processes may use one store at once.
//
//   <root>/objects/ab/<id>.kvg     the artifacts, by content identity (0600)
//   <root>/names/<name>            small files that hold an id: names are not in the catalog alone
//   <root>/pins/<id>               empty files: never evicted
//   <root>/quarantine/             what did not verify, with the reason beside it
//   <root>/tmp/                    unfinished writes; older leftovers are removed at start
//   <root>/catalog.sqlite          index; rebuilt by a scan when missing or damaged
//   <root>/lock                    flock'ed by whoever changes anything of the above
//
// The folder and all below it are private (0700, 0600 whatever the umask). Links are not followed.
// Last use is the object file's mtime, so eviction order survives a rebuild.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/status.h"

namespace kvgraft::store {

struct Entry {
  std::string id;
  std::vector<std::string> names;
  uint64_t file_bytes = 0;
  uint64_t n_tokens = 0;
  uint64_t n_image_tokens = 0;
  std::string compat_id;
  std::string tier;
  std::string model_name;
  std::string created;  // UTC ISO 8601
  int64_t last_used_unix = 0;
  bool pinned = false;
  std::string parent;
};

struct StoreOptions {
  std::string root;
  uint64_t budget_bytes = 0;               // all objects together; 0: no limit
  uint64_t free_floor_bytes = 1ull << 30;  // stop writing when less would stay free on the disk
  // Free bytes of the file system that holds a path; statvfs when empty; tests replace it.
  std::function<Result<uint64_t>(const std::string&)> free_bytes;
  // True for entries that go before all others when room is needed: their model is gone, say.
  std::function<bool(const Entry&)> evict_first;
  // False: Open removes nothing, neither entries nor unfinished writes; Gc then tells what goes.
  bool evict_at_open = true;
};

struct GcReport {
  std::vector<Entry> evicted;  // or would be, with dry_run
  std::vector<std::string> removed_temp;
  uint64_t bytes_freed = 0;
  uint64_t bytes_used = 0;  // afterwards
};

struct RebuildReport {
  uint64_t entries = 0;
  std::vector<std::string> quarantined;  // "<file>: <reason>"
};

class Store {
 public:
  // Opens or makes the folder: fixes modes, removes stale temporary files, enforces the budget and
  // the free-space floor, rebuilds the catalog when it is missing, damaged, or disagrees with the
  // folder. While another process is writing, all but the modes is left to the first change made
  // here. kInvalidArgument when the root or a folder in it is a symbolic link. A store may be used
  // by several threads.
  static Result<std::unique_ptr<Store>> Open(const StoreOptions& options);
  virtual ~Store() = default;

  virtual const StoreOptions& options() const = 0;
  // What was found and repaired since Open that the user should know: a folder that was open to
  // others, artifacts evicted at start, artifacts in quarantine.
  virtual std::vector<std::string> warnings() const { return {}; }

  // Makes room for `bytes` by evicting unpinned entries, least recently used first. kExhausted,
  // with nothing evicted, when it cannot be done within budget and free-space floor: says needed,
  // budget, pinned, free.
  virtual Status Reserve(uint64_t bytes) = 0;

  // Writes an artifact (Reserve, temporary file, sync, rename, catalog). Storing a content that is
  // already there is a success and keeps the existing file, unless only the new one is of tier
  // "exact". `name` may be empty; an existing name moves to the new artifact.
  virtual Result<Entry> Put(artifact::Parts& parts, ByteSpan image, std::string_view name) = 0;
  // Copies a .kvg file in after verifying all of it. `name` empty: the manifest's suggestion.
  virtual Result<Entry> Import(const std::string& path, std::string_view name) = 0;
  // Writes a byte-identical copy to `path`; refuses to overwrite unless `force`.
  virtual Status Export(std::string_view ref, const std::string& path, bool force) = 0;

  // `ref`: a name, a whole id, or a unique id prefix of 6 or more digits. kNotFound with what is
  // there; kInvalidArgument when ambiguous, with the candidates. A row whose file is gone is
  // removed and reported as kNotFound.
  virtual Result<Entry> Find(std::string_view ref) = 0;
  // Opens and marks as used. A file whose header or tables do not verify goes to quarantine.
  virtual Result<artifact::Reader> OpenArtifact(const Entry& entry) = 0;
  virtual Status MarkUsed(const Entry& entry) = 0;
  virtual std::string ObjectPath(std::string_view id) const = 0;

  // The entry with the longest token list that is a prefix of `tokens`, in namespace compat_id;
  // tokens are compared one by one, hashes only select candidates. nullopt: none.
  virtual Result<std::optional<Entry>> FindLongestPrefix(std::string_view compat_id,
                                                         std::span<const int32_t> tokens) = 0;

  virtual Result<std::vector<Entry>> List() = 0;  // most recently used first
  virtual Status SetName(std::string_view ref, std::string_view name) = 0;
  virtual Status SetPinned(std::string_view ref, bool pinned) = 0;
  // Removes a name (if `ref` is a name and other names remain) or the artifact with its names.
  virtual Result<Entry> Remove(std::string_view ref) = 0;
  // Moves an artifact that failed verification aside; it is listed no more.
  virtual Status Quarantine(std::string_view id, std::string_view reason) = 0;

  virtual Result<GcReport> Gc(bool dry_run) = 0;
  virtual Result<RebuildReport> Rebuild() = 0;
  virtual Result<uint64_t> UsedBytes() = 0;  // sum of object files, as the file system has them
};

// Names: 1 to 128 characters of [A-Za-z0-9._-], the first a letter or digit, no trailing dot, not
// a device name of other systems (CON, NUL, ...), and nothing that could be an id (64 hex digits).
Status CheckName(std::string_view name);

}  // namespace kvgraft::store
