#include "kvgraft/store/catalog.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kvgraft/store/folder.h"

namespace kvgraft::store {
namespace {

constexpr int kBusyMs = 10'000;

constexpr const char* kSchema =
    "BEGIN;"
    "CREATE TABLE artifacts("
    " id TEXT PRIMARY KEY NOT NULL, file_bytes INTEGER NOT NULL, n_tokens INTEGER NOT NULL,"
    " n_image_tokens INTEGER NOT NULL, compat_id TEXT NOT NULL, tokens_sha256 TEXT NOT NULL,"
    " tier TEXT NOT NULL, model_name TEXT NOT NULL, created TEXT NOT NULL, parent TEXT NOT NULL"
    ") WITHOUT ROWID;"
    "CREATE INDEX artifacts_by_tokens ON artifacts(compat_id, tier, n_tokens, tokens_sha256);"
    "PRAGMA user_version = 1;"
    "COMMIT;";
static_assert(kCatalogVersion == 1, "kSchema writes the version");

#define KVG_CATALOG_COLUMNS                                                                \
  "id, file_bytes, n_tokens, n_image_tokens, compat_id, tokens_sha256, tier, model_name, " \
  "created, parent"

Code CodeOf(int rc) {
  if (rc == SQLITE_READONLY_DBMOVED) return Code::kCorrupt;
  switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // no such table or column
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
    case SQLITE_CANTOPEN:  // gone, or a link or folder in its place
      return Code::kCorrupt;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return Code::kExhausted;
    default:
      return Code::kIo;
  }
}

int BindText(sqlite3_stmt* s, int at, std::string_view text) {
  return sqlite3_bind_text64(s, at, text.data() == nullptr ? "" : text.data(), text.size(),
                             SQLITE_STATIC, SQLITE_UTF8);
}

int BindInt(sqlite3_stmt* s, int at, uint64_t value) {
  return sqlite3_bind_int64(s, at, static_cast<sqlite3_int64>(value));
}

std::string Text(sqlite3_stmt* s, int column) {
  const unsigned char* text = sqlite3_column_text(s, column);
  if (text == nullptr) return "";
  return std::string(reinterpret_cast<const char*>(text),
                     static_cast<size_t>(sqlite3_column_bytes(s, column)));
}

uint64_t Int(sqlite3_stmt* s, int column) {
  const sqlite3_int64 value = sqlite3_column_int64(s, column);
  return value < 0 ? 0 : static_cast<uint64_t>(value);
}

CatalogRow ReadRow(sqlite3_stmt* s) {
  return CatalogRow{.id = Text(s, 0),
                    .file_bytes = Int(s, 1),
                    .n_tokens = Int(s, 2),
                    .n_image_tokens = Int(s, 3),
                    .compat_id = Text(s, 4),
                    .tokens_sha256 = Text(s, 5),
                    .tier = Text(s, 6),
                    .model_name = Text(s, 7),
                    .created = Text(s, 8),
                    .parent = Text(s, 9)};
}

}  // namespace

// One run of a prepared statement; resets it at the end, which also gives back its file lock.
class Catalog::Step {
 public:
  explicit Step(sqlite3_stmt* s) : s_(s) {}
  ~Step() {
    sqlite3_reset(s_);
    sqlite3_clear_bindings(s_);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  int operator()() { return sqlite3_step(s_); }
  sqlite3_stmt* get() { return s_; }

 private:
  sqlite3_stmt* s_;
};

Catalog::~Catalog() {
  for (sqlite3_stmt* statement : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

Status Catalog::Error(int rc, std::string_view what) const {
  const std::string detail = db_ != nullptr ? sqlite3_errmsg(db_) : sqlite3_errstr(rc);
  const Code code = CodeOf(rc);
  return Status(
      code, (path_.empty() ? std::string("catalog in memory") : path_) + ": cannot " +
                std::string(what) + ": " + detail +
                (code == Code::kCorrupt ? " (the catalog is made again from the artifacts)" : ""));
}

Result<std::unique_ptr<Catalog>> Catalog::Connect(const std::string& path) {
  std::unique_ptr<Catalog> catalog(new Catalog());
  catalog->path_ = path;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX |
                    (path.empty() ? SQLITE_OPEN_CREATE : SQLITE_OPEN_NOFOLLOW);
  const int rc =
      sqlite3_open_v2(path.empty() ? ":memory:" : path.c_str(), &catalog->db_, flags, nullptr);
  if (rc != SQLITE_OK) return catalog->Error(rc, "open");
  sqlite3_extended_result_codes(catalog->db_, 1);
  sqlite3_busy_timeout(catalog->db_, kBusyMs);
  struct stat info;
  if (!path.empty() && ::lstat(path.c_str(), &info) == 0) {
    catalog->device_ = static_cast<uint64_t>(info.st_dev);
    catalog->inode_ = static_cast<uint64_t>(info.st_ino);
  }
  KVG_RETURN(catalog->Exec("PRAGMA synchronous = OFF", "set up"));
  // Data in the file must not be able to run anything: views, triggers and odd schemas.
  sqlite3_db_config(catalog->db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(catalog->db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  return catalog;
}

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status(Code::kCorrupt, path + ": missing or not a regular file");
  }
  if ((info.st_mode & 077) != 0) ::chmod(path.c_str(), 0600);
  KVG_ASSIGN(std::unique_ptr<Catalog> catalog, Connect(path));
  KVG_RETURN(catalog->CheckStructure());
  KVG_RETURN(catalog->PrepareAll());
  return catalog;
}

Result<std::unique_ptr<Catalog>> Catalog::Create(const std::string& path) {
  // The journal of the old file must not be taken for one of the new file.
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
    const std::string old = path + suffix;
    if (::unlink(old.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus("remove the damaged catalog", old, errno);
    }
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrnoStatus("create the catalog", path, errno);
  ::fchmod(fd, 0600);
  ::close(fd);
  KVG_ASSIGN(std::unique_ptr<Catalog> catalog, Connect(path));
  KVG_RETURN(catalog->Exec(kSchema, "create the tables"));
  KVG_RETURN(catalog->PrepareAll());
  return catalog;
}

Result<std::unique_ptr<Catalog>> Catalog::InMemory() {
  KVG_ASSIGN(std::unique_ptr<Catalog> catalog, Connect(""));
  KVG_RETURN(catalog->Exec(kSchema, "create the tables"));
  KVG_RETURN(catalog->PrepareAll());
  return catalog;
}

bool Catalog::IsCurrent() const {
  if (path_.empty()) return true;
  struct stat info;
  return ::lstat(path_.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_dev) == device_ &&
         static_cast<uint64_t>(info.st_ino) == inode_;
}

Status Catalog::Exec(const char* sql, const char* what) {
  const int rc = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  return rc == SQLITE_OK ? Status::Ok() : Error(rc, what);
}

Result<int64_t> Catalog::PragmaInt(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  int rc = sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr);
  if (rc != SQLITE_OK) return Error(rc, "read the version");
  rc = sqlite3_step(statement);
  const int64_t value = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
  sqlite3_finalize(statement);
  if (rc != SQLITE_ROW) return Error(rc, "read the version");
  return value;
}

Status Catalog::CheckStructure() {
  KVG_ASSIGN(const int64_t version, PragmaInt("PRAGMA user_version"));
  if (version != kCatalogVersion) {
    return Status(Code::kCorrupt, path_ + ": catalog version " + std::to_string(version) +
                                      ", this program uses " + std::to_string(kCatalogVersion));
  }
  sqlite3_stmt* statement = nullptr;
  int rc = sqlite3_prepare_v2(db_, "PRAGMA quick_check(1)", -1, &statement, nullptr);
  if (rc != SQLITE_OK) return Error(rc, "check");
  rc = sqlite3_step(statement);
  const std::string verdict = rc == SQLITE_ROW ? Text(statement, 0) : "";
  sqlite3_finalize(statement);
  if (rc != SQLITE_ROW) return Error(rc, "check");
  if (verdict != "ok") return Status(Code::kCorrupt, path_ + ": damaged catalog: " + verdict);
  return Status::Ok();
}

Status Catalog::PrepareAll() {
  constexpr const char* kSql[kQueries] = {
      "SELECT " KVG_CATALOG_COLUMNS " FROM artifacts WHERE id = ?1",
      "SELECT " KVG_CATALOG_COLUMNS " FROM artifacts",
      "INSERT OR REPLACE INTO artifacts(" KVG_CATALOG_COLUMNS
      ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
      "DELETE FROM artifacts WHERE id = ?1",
      "SELECT DISTINCT n_tokens FROM artifacts WHERE compat_id = ?1 AND tier = ?2 AND "
      "n_tokens <= ?3 ORDER BY n_tokens DESC",
      "SELECT id FROM artifacts WHERE compat_id = ?1 AND tier = ?2 AND n_tokens = ?3 AND "
      "tokens_sha256 = ?4 ORDER BY id",
      "BEGIN IMMEDIATE",
      "COMMIT",
      "ROLLBACK",
  };
  for (int i = 0; i < kQueries; ++i) {
    const int rc =
        sqlite3_prepare_v3(db_, kSql[i], -1, SQLITE_PREPARE_PERSISTENT, &statements_[i], nullptr);
    if (rc != SQLITE_OK) return Error(rc, "prepare a query");
  }
  return Status::Ok();
}

Result<std::optional<CatalogRow>> Catalog::Get(std::string_view id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Step step(statements_[kGet]);
  BindText(step.get(), 1, id);
  const int rc = step();
  if (rc == SQLITE_DONE) return std::optional<CatalogRow>();
  if (rc != SQLITE_ROW) return Error(rc, "look up an artifact");
  return std::optional<CatalogRow>(ReadRow(step.get()));
}

Result<std::vector<CatalogRow>> Catalog::All() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CatalogRow> rows;
  Step step(statements_[kAll]);
  int rc;
  while ((rc = step()) == SQLITE_ROW) rows.push_back(ReadRow(step.get()));
  if (rc != SQLITE_DONE) return Error(rc, "list the artifacts");
  return rows;
}

Status Catalog::Apply(const std::vector<CatalogRow>& upserts,
                      const std::vector<std::string>& erased) {
  if (upserts.empty() && erased.empty()) return Status::Ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  int rc = Step(statements_[kBegin])();
  if (rc != SQLITE_DONE) return Error(rc, "begin a change");
  for (const std::string& id : erased) {
    Step step(statements_[kErase]);
    BindText(step.get(), 1, id);
    rc = step();
    if (rc != SQLITE_DONE) break;
  }
  for (const CatalogRow& row : upserts) {
    if (rc != SQLITE_DONE) break;
    Step step(statements_[kUpsert]);
    sqlite3_stmt* s = step.get();
    BindText(s, 1, row.id);
    BindInt(s, 2, row.file_bytes);
    BindInt(s, 3, row.n_tokens);
    BindInt(s, 4, row.n_image_tokens);
    BindText(s, 5, row.compat_id);
    BindText(s, 6, row.tokens_sha256);
    BindText(s, 7, row.tier);
    BindText(s, 8, row.model_name);
    BindText(s, 9, row.created);
    BindText(s, 10, row.parent);
    rc = step();
  }
  if (rc == SQLITE_DONE) rc = Step(statements_[kCommit])();
  if (rc == SQLITE_DONE) return Status::Ok();
  const Status failed = Error(rc, "change the catalog");
  if (sqlite3_get_autocommit(db_) == 0) {
    Step rollback(statements_[kRollback]);
    rollback();
  }
  return failed;
}

Result<std::vector<uint64_t>> Catalog::TokenCounts(std::string_view compat_id,
                                                   std::string_view tier, uint64_t max_tokens) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint64_t> counts;
  Step step(statements_[kCounts]);
  BindText(step.get(), 1, compat_id);
  BindText(step.get(), 2, tier);
  BindInt(step.get(), 3, max_tokens);
  int rc;
  while ((rc = step()) == SQLITE_ROW) counts.push_back(Int(step.get(), 0));
  if (rc != SQLITE_DONE) return Error(rc, "look up prefixes");
  return counts;
}

Result<std::vector<std::string>> Catalog::IdsByTokens(std::string_view compat_id,
                                                      std::string_view tier, uint64_t n_tokens,
                                                      std::string_view tokens_sha256) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> ids;
  Step step(statements_[kIds]);
  BindText(step.get(), 1, compat_id);
  BindText(step.get(), 2, tier);
  BindInt(step.get(), 3, n_tokens);
  BindText(step.get(), 4, tokens_sha256);
  int rc;
  while ((rc = step()) == SQLITE_ROW) ids.push_back(Text(step.get(), 0));
  if (rc != SQLITE_DONE) return Error(rc, "look up a prefix");
  return ids;
}

}  // namespace kvgraft::store
