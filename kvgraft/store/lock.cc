#include "kvgraft/store/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <optional>
#include <random>
#include <string_view>
#include <thread>

#include "kvgraft/core/file.h"
#include "kvgraft/store/folder.h"

namespace kvgraft::store {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// 0 when locked, else errno.
int TryFlock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

std::optional<pid_t> ParsePid(std::string_view text) {
  long long pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || pid <= 0 || pid > INT32_MAX) return std::nullopt;
  if (end == text.data() + text.size() || *end != '-') return std::nullopt;
  return static_cast<pid_t>(pid);
}

// The process that made a temporary file: "<pid>-..." or core's ".<base>.<pid>-<n>-<hex>.tmp".
std::optional<pid_t> OwnerOf(std::string_view name) {
  if (name.ends_with(".tmp")) {
    name.remove_suffix(4);
    const size_t dot = name.rfind('.');
    if (dot != std::string_view::npos) name.remove_prefix(dot + 1);
  }
  return ParsePid(name);
}

bool IsAlive(pid_t pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

bool IsStaleFile(const std::string& path, std::string_view name) {
  constexpr time_t kUnclaimedSeconds = 3600;
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return false;
  if (const std::optional<pid_t> pid = OwnerOf(name)) return !IsAlive(*pid);
  return info.st_mtime + kUnclaimedSeconds < ::time(nullptr);
}

// Whether nobody holds the folder's owner file. One that cannot be opened, other than for being
// missing, counts as held.
bool IsStaleFolder(const std::string& path) {
  const std::string owner = JoinPath(path, "owner");
  const int fd = ::open(owner.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT || errno == ELOOP;
  const bool free = TryFlock(fd) == 0;
  ::close(fd);
  return free;
}

// A folder with the plain files in it; no deeper.
void RemoveFlat(const std::string& path) {
  for (const std::string& name : ListDir(path)) ::unlink(JoinPath(path, name).c_str());
  ::rmdir(path.c_str());
}

}  // namespace

Result<std::unique_ptr<StoreLock>> StoreLock::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrnoStatus("open the lock file", path, errno);
  ::fchmod(fd, 0600);
  return std::unique_ptr<StoreLock>(new StoreLock(path, fd));
}

StoreLock::~StoreLock() { ::close(fd_); }

StoreLock::Guard::~Guard() {
  if (lock_ == nullptr) return;
  ::flock(lock_->fd_, LOCK_UN);
  lock_->mutex_.unlock();
}

Result<StoreLock::Guard> StoreLock::Acquire(milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  if (!mutex_.try_lock_until(deadline)) {
    return Status(Code::kIo, path_ + ": another thread has been writing to the store for " +
                                 std::to_string(timeout.count()) + " ms");
  }
  milliseconds pause(1);
  int error;
  while ((error = TryFlock(fd_)) == EWOULDBLOCK && Clock::now() < deadline) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(20));
  }
  if (error != 0) {
    mutex_.unlock();
    if (error != EWOULDBLOCK) return ErrnoStatus("lock", path_, error);
    char holder[16] = {};
    const ssize_t n = ::pread(fd_, holder, sizeof(holder) - 1, 0);
    return Status(
        Code::kIo,
        fmt::format("{}: process {} has been changing the store for {} ms; try again when "
                    "it is done",
                    path_, n > 0 ? std::string(holder, static_cast<size_t>(n)) : "?",
                    timeout.count()));
  }
  // For the message above only, so a full disk does not matter.
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, pid.data(), pid.size(), 0) < 0) errno = 0;
  return Guard(this);
}

TempFolder::~TempFolder() {
  if (owner_fd_ < 0) return;
  if (owner_pid_ == ::getpid()) RemoveFlat(path_);
  ::close(owner_fd_);
}

Result<std::string> TempFolder::Path() {
  struct stat info;
  if (owner_fd_ >= 0 && ::lstat(path_.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
      owner_pid_ == ::getpid()) {
    return path_;
  }
  if (owner_fd_ >= 0) ::close(owner_fd_);
  owner_fd_ = -1;
  std::random_device random;
  const uint64_t tag = (uint64_t{random()} << 32) | random();
  path_ = JoinPath(tmp_, fmt::format("{}-{:016x}", ::getpid(), tag));
  KVG_RETURN(MakePrivateDirs(path_));
  const std::string owner = JoinPath(path_, "owner");
  const int fd = ::open(owner.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  const int error = fd < 0 ? errno : TryFlock(fd);
  if (error != 0) {
    if (fd >= 0) ::close(fd);
    RemoveFlat(path_);
    return ErrnoStatus("claim", owner, error);
  }
  owner_fd_ = fd;
  owner_pid_ = ::getpid();
  return path_;
}

Result<std::vector<std::string>> TempFolder::RemoveStale(const std::string& tmp, bool dry_run) {
  std::vector<std::string> removed;
  for (const std::string& name : ListDir(tmp)) {
    const std::string path = JoinPath(tmp, name);
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0) continue;
    const bool is_folder = S_ISDIR(info.st_mode);
    if (is_folder ? !IsStaleFolder(path) : !IsStaleFile(path, name)) continue;
    if (!dry_run && is_folder) RemoveFlat(path);
    if (!dry_run && !is_folder) ::unlink(path.c_str());
    removed.push_back(path);
  }
  return removed;
}

}  // namespace kvgraft::store
