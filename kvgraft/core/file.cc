#include "kvgraft/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace kvgraft {
namespace {

// A single write(2) moves at most about 2 GiB on Linux and fails above INT_MAX on macOS.
constexpr size_t kMaxWriteBytes = 1u << 30;

Status Failure(const std::string& path, const char* what, int error) {
  Code code = Code::kIo;
  std::string advice;
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = Code::kExhausted;
      advice = " (free some space, or use another folder)";
      break;
    case ENOENT:
    case ENOTDIR:
      code = Code::kNotFound;
      break;
    case ELOOP:
      code = Code::kInvalidArgument;
      advice = " (links are not followed here)";
      break;
    default:
      break;
  }
  return Status(code, fmt::format("{}: cannot {}: {}{}", path, what, std::strerror(error), advice));
}

std::string ParentDir(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string BaseName(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// Opens a regular file for reading without following a link in its last component. O_NONBLOCK so
// that a FIFO in its place cannot hang the process; it has no effect on regular files.
Result<int> OpenRegular(const std::string& path, uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return Failure(path, "open", errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return Failure(path, "inspect", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return Status(Code::kInvalidArgument, path + ": not a regular file");
  }
  *size = static_cast<uint64_t>(info.st_size);
  return fd;
}

int SyncFile(int fd) {
#ifdef __APPLE__
  // fsync there does not reach the medium.
  if (::fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
  return ::fsync(fd);
}

Status SyncDir(const std::string& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return Failure(dir, "open", errno);
  const int rc = SyncFile(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a directory and say EINVAL.
  if (rc != 0 && error != EINVAL) return Failure(dir, "sync", error);
  return Status::Ok();
}

}  // namespace

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<MappedFile> MappedFile::Open(const std::string& path, bool populate) {
  uint64_t size = 0;
  KVG_ASSIGN(const int fd, OpenRegular(path, &size));
  MappedFile file;
  if (size == 0) {
    ::close(fd);
    return file;
  }
  int flags = MAP_PRIVATE;
#ifdef MAP_POPULATE
  if (populate) flags |= MAP_POPULATE;
#else
  (void)populate;
#endif
  void* data = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, flags, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return Failure(path, "map", error);
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = static_cast<size_t>(size);
  return file;
}

void MappedFile::Prefetch(ByteSpan part) const {
#ifdef MADV_POPULATE_READ
  const auto address = [](const uint8_t* p) { return reinterpret_cast<uintptr_t>(p); };
  if (part.empty() || address(part.data()) < address(data_) ||
      address(part.data()) + part.size() > address(data_) + size_) {
    return;
  }
  static const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = address(part.data()) & ~(page - 1);
  const uintptr_t end = address(part.data()) + part.size();
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#else
  (void)part;
#endif
}

Result<AtomicFile> AtomicFile::Create(const std::string& path, const std::string& temp_dir) {
  const std::string base = BaseName(path);
  if (base.empty() || base == "." || base == "..") {
    return Status(Code::kInvalidArgument, "\"" + path + "\": not the name of a file");
  }
  // Unique among processes and threads; O_EXCL decides, so a guess costs a retry, not safety.
  static std::atomic<uint64_t> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    AtomicFile file;
    file.path_ = path;
    file.temp_path_ =
        JoinPath(temp_dir, fmt::format(".{}.{}-{}-{:x}.tmp", base.substr(0, 80), ::getpid(),
                                       counter.fetch_add(1), static_cast<uint64_t>(now)));
    file.fd_ =
        ::open(file.temp_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file.fd_ < 0) {
      const int error = errno;
      if (error == EEXIST) continue;
      return Failure(file.temp_path_, "create", error);
    }
    // A umask of 0777 would leave a file that its owner cannot read.
    if (::fchmod(file.fd_, 0600) != 0) {
      const int error = errno;
      file.Discard();
      return Failure(file.temp_path_, "set the mode of", error);
    }
    return file;
  }
  return Status(Code::kIo, temp_dir + ": cannot find an unused temporary name");
}

AtomicFile::~AtomicFile() { Discard(); }

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      temp_path_(std::move(other.temp_path_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  fd_ = std::exchange(other.fd_, -1);
  size_ = std::exchange(other.size_, 0);
  path_ = std::move(other.path_);
  temp_path_ = std::move(other.temp_path_);
  return *this;
}

void AtomicFile::Discard() {
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = -1;
  ::unlink(temp_path_.c_str());
}

Status AtomicFile::Reserve(uint64_t bytes) {
  KVG_CHECK(fd_ >= 0);
#ifdef __linux__
  if (bytes <= size_) return Status::Ok();
  if (bytes > static_cast<uint64_t>(INT64_MAX)) return Failure(temp_path_, "reserve room", EFBIG);
  int rc;
  do {
    rc = ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (rc != 0 && errno == EINTR);
  const int error = errno;
  if (rc != 0 && (error == ENOSPC || error == EDQUOT || error == EFBIG)) {
    return Failure(temp_path_, ("reserve " + FormatBytes(bytes)).c_str(), error);
  }
#else
  (void)bytes;
#endif
  return Status::Ok();
}

Status AtomicFile::Append(ByteSpan bytes) { return WriteAt(size_, bytes); }

Status AtomicFile::WriteAt(uint64_t offset, ByteSpan bytes) {
  KVG_CHECK(fd_ >= 0);
  KVG_CHECK(offset <= size_);
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kMaxWriteBytes);
    const ssize_t written = ::pwrite(fd_, bytes.data(), n, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return Failure(temp_path_, "write", errno);
    }
    if (written == 0) return Failure(temp_path_, "write", ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
    size_ = std::max(size_, offset);
  }
  return Status::Ok();
}

Status AtomicFile::Commit() {
  KVG_CHECK(fd_ >= 0);
  if (SyncFile(fd_) != 0) {
    const int error = errno;
    Discard();
    return Failure(temp_path_, "sync", error);
  }
  // Delayed allocation reports a full disk at close on some network file systems.
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) {
    const int error = errno;
    ::unlink(temp_path_.c_str());
    return Failure(temp_path_, "close", error);
  }
  if (::rename(temp_path_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temp_path_.c_str());
    return Failure(path_, "rename a finished file to", error);
  }
  return SyncDir(ParentDir(path_));
}

Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  KVG_ASSIGN(const int fd, OpenRegular(path, &size));
  if (size > max_bytes) {
    ::close(fd);
    return Status(Code::kCorrupt,
                  fmt::format("{}: {} bytes, the limit is {}", path, size, max_bytes));
  }
  std::string content(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      ::close(fd);
      return Failure(path, "read", error);
    }
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  ::close(fd);
  content.resize(done);
  return content;
}

Status WriteFileAtomic(const std::string& path, std::string_view content) {
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(path, ParentDir(path)));
  KVG_RETURN(file.Append(AsBytes(content)));
  return file.Commit();
}

Status MakePrivateDirs(const std::string& path) {
  if (path.empty()) return Status(Code::kInvalidArgument, "an empty path for a folder");
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string dir = path.substr(0, end);
    if (::mkdir(dir.c_str(), 0700) == 0) {
      // The umask may have taken bits of the owner away.
      if (::chmod(dir.c_str(), 0700) != 0) return Failure(dir, "set the mode of", errno);
    } else {
      const int error = errno;
      struct stat info;
      // Other errors (EROFS, EACCES) also come up for a folder that exists.
      if (::stat(dir.c_str(), &info) != 0) return Failure(dir, "create folder", error);
      if (!S_ISDIR(info.st_mode)) {
        return Status(Code::kInvalidArgument, dir + ": exists and is not a folder");
      }
    }
    if (end == std::string::npos) return Status::Ok();
  }
}

bool FileExists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string JoinPath(std::string_view a, std::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  if (b.empty()) return std::string(a);
  std::string joined(a);
  if (joined.back() != '/') joined += '/';
  joined += b;
  return joined;
}

}  // namespace kvgraft
