// The folder of a store as the file system has it: paths, modes, objects, names, pins, quarantine.
// Knows no catalog and no artifact format. Nothing here follows a link below the root.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft::store {

struct ObjectFile {
  std::string id;
  uint64_t bytes = 0;
  int64_t used_ns = 0;  // mtime: last use, nanoseconds since 1970
};

struct FolderScan {
  std::vector<ObjectFile> objects;   // in order of id
  std::vector<std::string> strange;  // paths of *.kvg that cannot be objects: links, wrong names
  uint64_t bytes = 0;                // of the objects
};

using NameMap = std::multimap<std::string, std::string>;  // id -> name

class Folder {
 public:
  // Makes what is missing, sets the modes, appends to `warnings` what was open to others.
  // kInvalidArgument when the root or one of its folders is a link or not a folder.
  static Result<Folder> Open(const std::string& root, std::vector<std::string>* warnings);

  const std::string& root() const { return root_; }  // absolute, links above it resolved
  std::string Path(std::string_view name) const;     // "tmp", "catalog.sqlite", ...
  std::string ObjectPath(std::string_view id) const;

  // Reads the whole object tree; repairs the modes of files that others could read.
  FolderScan Scan() const;
  // nullopt when there is no such object, or something that is not a plain file stands there.
  std::optional<ObjectFile> Stat(std::string_view id) const;
  // Ids that start with `prefix` (2 or more hex digits), in order.
  std::vector<std::string> IdsWithPrefix(std::string_view prefix) const;
  // The folder of an object, made and synced when missing.
  Status MakeShard(std::string_view id) const;
  // Sets the last use to now; later calls of a process get later times, whatever the clock's step.
  Status Touch(std::string_view id) const;
  Status RemoveObject(std::string_view id) const;  // success when it is gone already

  // Names hold a whole id and a line feed; files with anything else in them name nothing.
  NameMap ReadNames() const;
  std::optional<std::string> ReadName(std::string_view name) const;
  Status WriteName(std::string_view name, std::string_view id, const std::string& temp_dir) const;
  Status RemoveName(std::string_view name) const;
  std::vector<std::string> NamesOf(std::string_view id) const;

  bool IsPinned(std::string_view id) const;
  Status SetPinned(std::string_view id, bool pinned, const std::string& temp_dir) const;
  std::vector<std::string> ReadPins() const;

  // Moves a file aside with a .reason file beside it. Keeps the newest 16 of what is there.
  Status MoveToQuarantine(const std::string& path, std::string_view reason,
                          const std::string& temp_dir) const;

 private:
  std::string root_;
};

// Names in a folder without "." and ".."; empty when it cannot be read or is a link.
std::vector<std::string> ListDir(const std::string& path);
// "<path>: cannot <what>: <errno>": kExhausted for a full disk, kNotFound, kInvalidArgument for
// links, else kIo.
Status ErrnoStatus(std::string_view what, const std::string& path, int error);
// False for a link to a folder.
bool IsFolder(const std::string& path);

}  // namespace kvgraft::store
