// What changes the store on request: put, import, export, names, pins, remove.
#include <algorithm>

#include "kvgraft/core/file.h"
#include "kvgraft/store/store_impl.h"

namespace kvgraft::store {
namespace {

constexpr size_t kCopyBytes = 8 << 20;

Status Copy(ByteSpan bytes, AtomicFile* out) {
  for (size_t at = 0; at < bytes.size(); at += kCopyBytes) {
    KVG_RETURN(out->Append(bytes.subspan(at, std::min(kCopyBytes, bytes.size() - at))));
  }
  return Status::Ok();
}

}  // namespace

bool StoreImpl::HasSoundObjectLocked(const std::string& id, std::string* tier) {
  if (!folder_.Stat(id).has_value()) return false;
  Status status;
  {
    const Result<artifact::Reader> reader = artifact::Reader::Open(folder_.ObjectPath(id));
    status = reader.ok() ? reader->VerifyPages() : reader.status();
    if (status.ok() && reader->manifest().id == id) {
      if (tier != nullptr) *tier = reader->manifest().tier;
      return true;
    }
  }
  const Status moved =
      QuarantineLocked(id, status.ok() ? "its header names another artifact" : status.message());
  (void)moved;  // if it cannot be moved, the new file replaces it
  return false;
}

Result<Entry> StoreImpl::FinishPutLocked(const std::string& id, const CatalogRow* row,
                                         std::string_view name) {
  KVG_RETURN(folder_.Touch(id));
  if (row != nullptr) IndexLocked({*row}, {});
  if (!name.empty()) {
    KVG_ASSIGN(const std::string temp, temp_.Path());
    const Status named = folder_.WriteName(name, id, temp);
    if (!named.ok()) return named.Annotate("stored as " + id + ", but not its name");
  }
  Heal heal;
  Result<Entry> entry = FindEntry(id, &heal);
  ApplyLocked(heal);
  return entry;
}

Result<Entry> StoreImpl::Put(artifact::Parts& parts, ByteSpan image, std::string_view name) {
  if (!name.empty()) KVG_RETURN(CheckName(name));
  const artifact::Manifest& manifest = parts.manifest;
  const std::string id = artifact::ContentId(manifest.identity, parts.tokens, parts.positions,
                                             manifest.n_image_tokens, image);
  if (!manifest.id.empty() && manifest.id != id) {
    return Status(Code::kInvalidArgument,
                  "store: the manifest says artifact " + manifest.id + ", its content is " + id);
  }
  KVG_ASSIGN(const uint64_t file_bytes, artifact::FileBytes(parts, image.size()));

  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  std::string tier;
  const bool there = HasSoundObjectLocked(id, &tier);
  // The same state, now known to be exact, replaces one whose origin was not known.
  if (there && (tier == "exact" || manifest.tier != "exact")) {
    parts.manifest.id = id;
    return FinishPutLocked(id, nullptr, name);
  }
  KVG_RETURN(ReserveLocked(file_bytes));
  KVG_RETURN(folder_.MakeShard(id));
  KVG_ASSIGN(const std::string temp, temp_.Path());
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(folder_.ObjectPath(id), temp));
  KVG_RETURN(file.Reserve(file_bytes));
  KVG_RETURN(artifact::Write(parts, image, file));
  const CatalogRow row = RowOf(parts.manifest, parts.tokens, file.size());
  KVG_RETURN(file.Commit());
  return FinishPutLocked(id, &row, name);
}

Result<Entry> StoreImpl::Import(const std::string& path, std::string_view name) {
  if (!name.empty()) KVG_RETURN(CheckName(name));
  KVG_ASSIGN(const MappedFile source, MappedFile::Open(path, /*populate=*/false));
  std::string id, suggestion;
  {
    KVG_ASSIGN(const artifact::Reader reader, artifact::Reader::FromBytes(source.bytes(), path));
    KVG_RETURN(reader.VerifyPages());
    KVG_RETURN(reader.VerifyContent());
    id = reader.manifest().id;
    suggestion = reader.manifest().name;
  }

  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  // The file's own suggestion comes from outside: it may neither be unsafe nor take a name away.
  if (name.empty() && CheckName(suggestion).ok()) {
    const std::optional<std::string> owner = folder_.ReadName(suggestion);
    if (!owner.has_value() || *owner == id || !folder_.Stat(*owner).has_value()) name = suggestion;
  }
  if (HasSoundObjectLocked(id)) return FinishPutLocked(id, nullptr, name);
  KVG_RETURN(ReserveLocked(source.bytes().size()));
  KVG_RETURN(folder_.MakeShard(id));
  KVG_ASSIGN(const std::string temp, temp_.Path());
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(folder_.ObjectPath(id), temp));
  KVG_RETURN(file.Reserve(source.bytes().size()));
  KVG_RETURN(Copy(source.bytes(), &file));
  CatalogRow row;
  {
    // The copy is what counts: the source may have changed since it was verified.
    KVG_ASSIGN(const artifact::Reader copy, artifact::Reader::Open(file.temp_path()));
    KVG_RETURN(copy.VerifyPages());
    KVG_RETURN(copy.VerifyContent());
    row = RowOf(copy.manifest(), copy.tokens(), copy.file_bytes());
  }
  if (row.id != id) {
    return Status(Code::kCorrupt, path + ": changed while it was being imported; try again");
  }
  KVG_RETURN(file.Commit());
  return FinishPutLocked(id, &row, name);
}

Status StoreImpl::Export(std::string_view ref, const std::string& path, bool force) {
  const auto refuse_existing = [&] {
    return !force && FileExists(path)
               ? Status(Code::kInvalidArgument, path + ": exists already; pass force to replace it")
               : Status::Ok();
  };
  KVG_RETURN(refuse_existing());
  KVG_ASSIGN(const Entry entry, Find(ref));
  KVG_ASSIGN(const MappedFile source, MappedFile::Open(ObjectPath(entry.id), /*populate=*/false));
  KVG_ASSIGN(const artifact::Reader reader,
             artifact::Reader::FromBytes(source.bytes(), ObjectPath(entry.id)));
  const Status sound = reader.VerifyPages();
  if (!sound.ok()) {
    const Status moved = Quarantine(entry.id, sound.message());
    return moved.ok() ? sound.Annotate("moved to quarantine") : sound;
  }
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(path, FolderOf(path)));
  KVG_RETURN(file.Reserve(source.bytes().size()));
  KVG_RETURN(Copy(source.bytes(), &file));
  KVG_RETURN(refuse_existing());
  return file.Commit();
}

Status StoreImpl::SetName(std::string_view ref, std::string_view name) {
  KVG_RETURN(CheckName(name));
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  Heal heal;
  const Result<std::string> id = ResolveId(ref, &heal);
  ApplyLocked(heal);
  if (!id.ok()) return id.status();
  KVG_ASSIGN(const std::string temp, temp_.Path());
  return folder_.WriteName(name, *id, temp);
}

Status StoreImpl::SetPinned(std::string_view ref, bool pinned) {
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  Heal heal;
  const Result<std::string> id = ResolveId(ref, &heal);
  ApplyLocked(heal);
  if (!id.ok()) return id.status();
  if (!pinned) return folder_.SetPinned(*id, false, "");
  KVG_ASSIGN(const std::string temp, temp_.Path());
  return folder_.SetPinned(*id, true, temp);
}

Status StoreImpl::RemoveArtifactLocked(const std::string& id,
                                       const std::vector<std::string>& names) {
  // The file first: names and a pin without a file are nothing, a file without them is an artifact.
  KVG_RETURN(folder_.RemoveObject(id));
  IndexLocked({}, {id});
  for (const std::string& name : names) KVG_RETURN(folder_.RemoveName(name));
  return folder_.SetPinned(id, false, "");
}

Result<Entry> StoreImpl::Remove(std::string_view ref) {
  KVG_ASSIGN(const StoreLock::Guard guard, LockForChange());
  Heal heal;
  Result<Entry> found = FindEntry(ref, &heal);
  ApplyLocked(heal);
  if (!found.ok()) return found;
  Entry entry = std::move(found).value();
  const auto as_name = std::find(entry.names.begin(), entry.names.end(), ref);
  if (as_name != entry.names.end() && entry.names.size() > 1) {
    KVG_RETURN(folder_.RemoveName(*as_name));
    entry.names.erase(as_name);
    return entry;
  }
  KVG_RETURN(RemoveArtifactLocked(entry.id, entry.names));
  return entry;
}

}  // namespace kvgraft::store
