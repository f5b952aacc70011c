// What keeps several processes on one store apart: one lock for everything that changes it, and a
// private folder for the unfinished files of each process. Both rest on flock, which the kernel
// drops with the process: nothing that a crash leaves behind can block or mislead anybody.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft::store {

// The lock of <root>/lock, between threads (a mutex) and between processes (flock). Not recursive.
class StoreLock {
 public:
  // Held for as long as it lives; must not outlive the lock.
  class Guard {
   public:
    explicit Guard(StoreLock* lock) : lock_(lock) {}
    Guard(Guard&& other) noexcept : lock_(other.lock_) { other.lock_ = nullptr; }
    Guard& operator=(Guard&&) = delete;
    ~Guard();

   private:
    StoreLock* lock_;
  };

  // Makes the file (0600) when it is missing; a link in its place is refused.
  static Result<std::unique_ptr<StoreLock>> Open(const std::string& path);
  ~StoreLock();
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;

  // Waits up to `timeout` (0: one try). kIo when it is still taken, with the holder's process id.
  Result<Guard> Acquire(std::chrono::milliseconds timeout);

 private:
  StoreLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
  std::timed_mutex mutex_;
};

// The folder <tmp>/<pid>-<random> of one process, with a file `owner` that it keeps locked. Files
// in it belong to a living process exactly as long as that lock is held, whatever became of the
// process id.
class TempFolder {
 public:
  explicit TempFolder(std::string tmp) : tmp_(std::move(tmp)) {}
  ~TempFolder();  // removes the folder
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  // Path of the folder, made at first use (and again if somebody removed it). Call with the store's
  // lock held: RemoveStale must not meet a folder whose owner file is not locked yet.
  Result<std::string> Path();

  // Removes what dead processes left under `tmp` and returns the paths (dry_run: only returns
  // them). A plain file directly in `tmp` goes when the process id that its name starts with is
  // dead, or, without one, when it is older than an hour. Call with the store's lock held.
  static Result<std::vector<std::string>> RemoveStale(const std::string& tmp, bool dry_run);

 private:
  std::string tmp_, path_;
  int owner_fd_ = -1;
  int owner_pid_ = 0;  // a forked child must not remove its parent's folder
};

}  // namespace kvgraft::store
