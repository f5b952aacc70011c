// Files as this product needs them: written under a temporary name, synced, renamed, directory
// synced; opened without following links; mapped read-only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/status.h"

namespace kvgraft {

// A read-only mapping of a whole regular file; move-only. A symbolic link is refused
// (kInvalidArgument), as is anything that is not a regular file; an empty file gives empty bytes().
// The mapping is safe against a file that is replaced by rename, as AtomicFile does; a file that
// another program truncates in place while it is mapped is not supported.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;

  // populate: ask the kernel to map the pages at once (fewer faults for a full sequential read).
  static Result<MappedFile> Open(const std::string& path, bool populate);
  ByteSpan bytes() const { return {data_, size_}; }
  // Asks the kernel to map the pages of `part` now, in one call instead of one fault for each. A
  // hint: no effect where it cannot be given or `part` is not of this mapping.
  void Prefetch(ByteSpan part) const;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Writes to `path` atomically: bytes go to a temporary file in `temp_dir` (same file system, mode
// 0600, created exclusively), Commit() syncs it, renames it to `path` and syncs the directory. If
// destroyed before Commit, the temporary file is removed and `path` is as it was.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path, const std::string& temp_dir);
  ~AtomicFile();
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;

  // Asks the file system for room for `bytes` in all, so that a full disk is seen before anything
  // is written. Ok, and without effect, where the file system cannot reserve.
  Status Reserve(uint64_t bytes);
  // kExhausted when the disk is full (ENOSPC, EDQUOT, EFBIG), kIo otherwise.
  Status Append(ByteSpan bytes);
  // Overwrites bytes already appended (headers that are known last).
  Status WriteAt(uint64_t offset, ByteSpan bytes);
  uint64_t size() const { return size_; }
  const std::string& temp_path() const { return temp_path_; }
  // Replaces an existing `path` (a link there is replaced, not followed). After an error nothing is
  // left behind. The object is spent afterwards.
  Status Commit();

 private:
  AtomicFile() = default;
  void Discard();
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_, temp_path_;
};

// Small whole files. ReadFile refuses more than `max_bytes` (kCorrupt) and links
// (kInvalidArgument).
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes);
Status WriteFileAtomic(const std::string& path, std::string_view content);

// mkdir -p with mode 0700 for every folder that it creates, whatever the umask.
// Folders that exist are left as they are. kInvalidArgument when something else stands in the way.
Status MakePrivateDirs(const std::string& path);
// True for anything of that name, a dangling link included.
bool FileExists(const std::string& path);

// The folder that a path's last name stands in: "." for a name alone, "/" for "/a".
std::string FolderOf(const std::string& path);
// "a/b", with one slash between; the other one where one is empty, and `b` where it is absolute.
std::string JoinPath(std::string_view a, std::string_view b);

}  // namespace kvgraft
