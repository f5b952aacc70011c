#include "kvgraft/store/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/store/store.h"

namespace kvgraft::store {
namespace {

constexpr std::string_view kExtension = ".kvg";
constexpr size_t kQuarantineKept = 16;
constexpr int64_t kNsPerSecond = 1'000'000'000;

int64_t MtimeNs(const struct stat& info) {
#ifdef __APPLE__
  return info.st_mtimespec.tv_sec * kNsPerSecond + info.st_mtimespec.tv_nsec;
#else
  return info.st_mtim.tv_sec * kNsPerSecond + info.st_mtim.tv_nsec;
#endif
}

// Strictly increasing within the process: file systems round and clocks step, LRU must not tie.
int64_t NextUseNs() {
  static std::atomic<int64_t> last{0};
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t clock = now.tv_sec * kNsPerSecond + now.tv_nsec;
  int64_t previous = last.load();
  int64_t next;
  do {
    next = clock > previous ? clock : previous + 1;
  } while (!last.compare_exchange_weak(previous, next));
  return next;
}

bool IsShardName(std::string_view name) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return name.size() == 2 && hex(name[0]) && hex(name[1]);
}

// Through a descriptor, so that a link swapped in between cannot redirect the change.
bool FixMode(const std::string& path, mode_t mode, int flags) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags);
  if (fd < 0) return false;
  const bool ok = ::fchmod(fd, mode) == 0;
  ::close(fd);
  return ok;
}

Status SyncDir(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return ErrnoStatus("open folder", path, errno);
  const int rc = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (rc != 0 && error != EINVAL) return ErrnoStatus("sync folder", path, error);
  return Status::Ok();
}

Status UnlinkIfThere(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus("remove", path, errno);
  return Status::Ok();
}

// One of the store's folders: made, or checked and its mode set.
Status PreparePrivateDir(const std::string& path, std::vector<std::string>* warnings) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus("inspect", path, errno);
    return MakePrivateDirs(path);
  }
  if (S_ISLNK(info.st_mode)) {
    return Status(Code::kInvalidArgument,
                  path +
                      ": is a symbolic link, which a store does not follow; give the folder that "
                      "it points to");
  }
  if (!S_ISDIR(info.st_mode)) return Status(Code::kInvalidArgument, path + ": is not a folder");
  const mode_t mode = info.st_mode & 07777;
  if (mode == 0700) return Status::Ok();
  if (!FixMode(path, 0700, O_DIRECTORY)) return ErrnoStatus("set the mode of", path, errno);
  if ((mode & 077) != 0) {
    const std::array<char, 5> octal = {'0', static_cast<char>('0' + ((mode >> 6) & 7)),
                                       static_cast<char>('0' + ((mode >> 3) & 7)),
                                       static_cast<char>('0' + (mode & 7)), '\0'};
    warnings->push_back(
        path + ": was open to other users (mode " + octal.data() +
        "), set to 0700; artifacts hold what their documents say, so treat what was "
        "in it as read by others");
  }
  return Status::Ok();
}

}  // namespace

std::vector<std::string> ListDir(const std::string& path) {
  std::vector<std::string> names;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
  if (fd < 0) return names;
  DIR* dir = ::fdopendir(fd);
  if (dir == nullptr) {
    ::close(fd);
    return names;
  }
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Status ErrnoStatus(std::string_view what, const std::string& path, int error) {
  const Code code = error == ENOSPC || error == EDQUOT || error == EFBIG ? Code::kExhausted
                    : error == ENOENT                                    ? Code::kNotFound
                    : error == ELOOP                                     ? Code::kInvalidArgument
                                                                         : Code::kIo;
  return Status(code, path + ": cannot " + std::string(what) + ": " + std::strerror(error) +
                          (error == ELOOP ? " (links are not followed)" : ""));
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<Folder> Folder::Open(const std::string& root, std::vector<std::string>* warnings) {
  if (root.empty()) return Status(Code::kInvalidArgument, "store: no folder given");
  std::string path = root;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  KVG_RETURN(PreparePrivateDir(path, warnings));
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return ErrnoStatus("resolve", path, errno);
  Folder folder;
  folder.root_ = resolved;
  ::free(resolved);
  // Behind a private root the modes of the rest expose nothing, so they are set without a word.
  std::vector<std::string> unheard;
  for (const char* name : {"objects", "names", "pins", "quarantine", "tmp"}) {
    KVG_RETURN(PreparePrivateDir(folder.Path(name), &unheard));
  }
  for (const std::string& name : ListDir(folder.Path("objects"))) {
    if (!IsShardName(name)) continue;
    KVG_RETURN(PreparePrivateDir(JoinPath(folder.Path("objects"), name), &unheard));
  }
  return folder;
}

std::string Folder::Path(std::string_view name) const { return JoinPath(root_, name); }

std::string Folder::ObjectPath(std::string_view id) const {
  std::string path = Path("objects/");
  path += id.substr(0, 2);
  path += '/';
  path += id;
  path += kExtension;
  return path;
}

FolderScan Folder::Scan() const {
  FolderScan scan;
  const std::string objects = Path("objects");
  for (const std::string& shard : ListDir(objects)) {
    const std::string dir = JoinPath(objects, shard);
    if (!IsShardName(shard)) continue;
    for (const std::string& name : ListDir(dir)) {
      if (name.front() == '.' || !name.ends_with(kExtension)) continue;
      const std::string path = JoinPath(dir, name);
      const std::string id = name.substr(0, name.size() - kExtension.size());
      struct stat info;
      if (::lstat(path.c_str(), &info) != 0) continue;
      if (!S_ISREG(info.st_mode) || !IsSha256Hex(id) || !id.starts_with(shard)) {
        scan.strange.push_back(path);
        continue;
      }
      if ((info.st_mode & 077) != 0) FixMode(path, 0600, 0);
      scan.objects.push_back({id, static_cast<uint64_t>(info.st_size), MtimeNs(info)});
      scan.bytes += static_cast<uint64_t>(info.st_size);
    }
  }
  return scan;
}

std::optional<ObjectFile> Folder::Stat(std::string_view id) const {
  if (!IsSha256Hex(id)) return std::nullopt;
  const std::string path = ObjectPath(id);
  struct stat info;
  if (!IsFolder(path.substr(0, path.rfind('/')))) return std::nullopt;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return ObjectFile{std::string(id), static_cast<uint64_t>(info.st_size), MtimeNs(info)};
}

std::vector<std::string> Folder::IdsWithPrefix(std::string_view prefix) const {
  std::vector<std::string> ids;
  if (!IsShardName(prefix.substr(0, 2))) return ids;
  for (const std::string& name : ListDir(JoinPath(Path("objects"), prefix.substr(0, 2)))) {
    if (!name.starts_with(prefix) || !name.ends_with(kExtension)) continue;
    std::string id = name.substr(0, name.size() - kExtension.size());
    if (Stat(id).has_value()) ids.push_back(std::move(id));
  }
  return ids;
}

Status Folder::MakeShard(std::string_view id) const {
  const std::string objects = Path("objects");
  const std::string dir = JoinPath(objects, id.substr(0, 2));
  if (IsFolder(dir)) return Status::Ok();
  std::vector<std::string> warnings;
  KVG_RETURN(PreparePrivateDir(dir, &warnings));
  return SyncDir(objects);
}

Status Folder::Touch(std::string_view id) const {
  const int64_t ns = NextUseNs();
  timespec time{};
  time.tv_sec = static_cast<time_t>(ns / kNsPerSecond);
  time.tv_nsec = static_cast<long>(ns % kNsPerSecond);
  const timespec times[2] = {time, time};
  const std::string path = ObjectPath(id);
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus("mark as used", path, errno);
  }
  return Status::Ok();
}

Status Folder::RemoveObject(std::string_view id) const { return UnlinkIfThere(ObjectPath(id)); }

std::optional<std::string> Folder::ReadName(std::string_view name) const {
  if (!CheckName(name).ok()) return std::nullopt;
  Result<std::string> content = ReadFile(JoinPath(Path("names"), name), 128);
  if (!content.ok()) return std::nullopt;
  std::string id = std::move(content).value();
  if (!id.empty() && id.back() == '\n') id.pop_back();
  if (!IsSha256Hex(id)) return std::nullopt;
  return id;
}

NameMap Folder::ReadNames() const {
  NameMap names;
  for (const std::string& name : ListDir(Path("names"))) {
    if (std::optional<std::string> id = ReadName(name)) names.emplace(*std::move(id), name);
  }
  return names;
}

std::vector<std::string> Folder::NamesOf(std::string_view id) const {
  std::vector<std::string> names;
  for (const auto& [key, name] : ReadNames()) {
    if (key == id) names.push_back(name);
  }
  return names;
}

Status Folder::WriteName(std::string_view name, std::string_view id,
                         const std::string& temp_dir) const {
  KVG_RETURN(CheckName(name));
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(JoinPath(Path("names"), name), temp_dir));
  KVG_RETURN(file.Append(AsBytes(std::string(id) + "\n")));
  return file.Commit();
}

Status Folder::RemoveName(std::string_view name) const {
  return UnlinkIfThere(JoinPath(Path("names"), name));
}

bool Folder::IsPinned(std::string_view id) const {
  struct stat info;
  return ::lstat(JoinPath(Path("pins"), id).c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Status Folder::SetPinned(std::string_view id, bool pinned, const std::string& temp_dir) const {
  const std::string path = JoinPath(Path("pins"), id);
  if (!pinned) return UnlinkIfThere(path);
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(path, temp_dir));
  return file.Commit();
}

std::vector<std::string> Folder::ReadPins() const {
  std::vector<std::string> pins = ListDir(Path("pins"));
  std::erase_if(pins, [](const std::string& id) { return !IsSha256Hex(id); });
  return pins;
}

Status Folder::MoveToQuarantine(const std::string& path, std::string_view reason,
                                const std::string& temp_dir) const {
  const std::string dir = Path("quarantine");
  const std::string base = path.substr(path.rfind('/') + 1);
  std::string target = JoinPath(dir, base);
  for (int i = 1; FileExists(target); ++i) target = JoinPath(dir, base + "." + std::to_string(i));
  if (::rename(path.c_str(), target.c_str()) != 0) {
    return ErrnoStatus("move to quarantine", path, errno);
  }
  // Without room for the reason the file is still out of the way, which is what counts.
  Result<AtomicFile> file = AtomicFile::Create(target + ".reason", temp_dir);
  if (file.ok() && file->Append(AsBytes(std::string(reason) + "\n")).ok()) {
    const Status ignored = file->Commit();
    (void)ignored;
  }
  // The oldest go, so that a disk that breaks files cannot fill itself with them.
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const std::string& name : ListDir(dir)) {
    struct stat info;
    const std::string file_path = JoinPath(dir, name);
    if (name.ends_with(".reason") || ::lstat(file_path.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode) || file_path == target) continue;
    kept.emplace_back(MtimeNs(info), file_path);
  }
  std::sort(kept.begin(), kept.end());
  for (size_t i = 0; i + kQuarantineKept - 1 < kept.size(); ++i) {
    ::unlink(kept[i].second.c_str());
    ::unlink((kept[i].second + ".reason").c_str());
  }
  return Status::Ok();
}

}  // namespace kvgraft::store
