// The index of a store: one SQLite table of what the artifacts' own headers say, so that listing
// and prefix search need not open every file. Nothing is kept here alone. All statements are
// prepared with bound parameters.
//
// Journal: rollback, not WAL, so that it also works where processes share no memory (network file
// systems). synchronous is off: a process killed at any moment is safe, and after a power loss a
// damaged index is made again from the files, which are synced.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kvgraft::store {

inline constexpr int kCatalogVersion = 1;  // PRAGMA user_version; another one: made again

struct CatalogRow {
  std::string id;
  uint64_t file_bytes = 0;
  uint64_t n_tokens = 0;
  uint64_t n_image_tokens = 0;
  std::string compat_id;
  std::string tokens_sha256;  // over the tokens as little-endian i32: selects, never decides
  std::string tier;
  std::string model_name;
  std::string created;
  std::string parent;
  bool operator==(const CatalogRow&) const = default;
};

// Safe for threads. Errors: kCorrupt when the file is missing, damaged or of another version (make
// it again with Create), kExhausted when the disk is full, kIo otherwise (locked for 10 s, ...).
class Catalog {
 public:
  // Opens an existing catalog and checks it (structure, version, columns).
  static Result<std::unique_ptr<Catalog>> Open(const std::string& path);
  // Replaces whatever is at `path` by an empty catalog (0600). Call with the store's lock held.
  static Result<std::unique_ptr<Catalog>> Create(const std::string& path);
  // For a disk that is too full to hold a catalog file.
  static Result<std::unique_ptr<Catalog>> InMemory();
  ~Catalog();
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // False when the file at the path is no longer the one that is open here: another process made
  // the catalog again.
  bool IsCurrent() const;

  Result<std::optional<CatalogRow>> Get(std::string_view id);
  Result<std::vector<CatalogRow>> All();
  // Inserts or replaces `upserts` and removes `erased` in one transaction.
  Status Apply(const std::vector<CatalogRow>& upserts, const std::vector<std::string>& erased);

  // Distinct n_tokens of a namespace and tier, at most `max_tokens`, longest first.
  Result<std::vector<uint64_t>> TokenCounts(std::string_view compat_id, std::string_view tier,
                                            uint64_t max_tokens);
  Result<std::vector<std::string>> IdsByTokens(std::string_view compat_id, std::string_view tier,
                                               uint64_t n_tokens, std::string_view tokens_sha256);

 private:
  enum Query { kGet, kAll, kUpsert, kErase, kCounts, kIds, kBegin, kCommit, kRollback, kQueries };
  class Step;

  Catalog() = default;
  static Result<std::unique_ptr<Catalog>> Connect(const std::string& path);
  Status Exec(const char* sql, const char* what);
  Result<int64_t> PragmaInt(const char* sql);
  Status CheckStructure();
  Status PrepareAll();
  Status Error(int rc, std::string_view what) const;

  std::mutex mutex_;
  std::string path_;  // empty: in memory
  uint64_t device_ = 0, inode_ = 0;
  sqlite3* db_ = nullptr;
  sqlite3_stmt* statements_[kQueries] = {};
};

}  // namespace kvgraft::store
