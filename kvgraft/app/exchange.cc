#include "kvgraft/app/exchange.h"

#include "kvgraft/app/ask.h"
#include "kvgraft/app/version.h"
#include "kvgraft/core/file.h"
#include "kvgraft/exchange/planes_file.h"

namespace kvgraft::app {
namespace {

// A context of the runtime's model that is only asked for its layout.
constexpr uint64_t kLayoutContext = 256;

Status RefuseExisting(const std::string& path, bool force) {
  if (force || !FileExists(path)) return Status::Ok();
  return Status(Code::kInvalidArgument, path + ": exists already; pass force to replace it");
}

// The file's own suggestion comes from outside: it may neither be unsafe nor take a name away.
Result<std::string> FreeName(store::Store& store, const artifact::Manifest& manifest) {
  if (!store::CheckName(manifest.name).ok()) return std::string();
  KVG_ASSIGN(const std::vector<store::Entry> all, store.List());
  for (const store::Entry& entry : all) {
    for (const std::string& name : entry.names) {
      if (name == manifest.name && entry.id != manifest.id) return std::string();
    }
  }
  return manifest.name;
}

}  // namespace

Result<PlanesExported> RunExportPlanes(Runtime& runtime, const std::string& ref,
                                       const std::string& path, bool force) {
  KVG_RETURN(RefuseExisting(path, force));
  KVG_ASSIGN(store::Store * store, runtime.OpenStore());
  KVG_ASSIGN(const OpenedArtifact opened, OpenRef(runtime, ref));
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  if (const Status pages = opened.reader.VerifyPages(runtime.config().n_threads); !pages.ok()) {
    KVG_RETURN(store->Quarantine(opened.entry.id, pages.message()));
    return pages.Annotate("moved to quarantine");
  }
  KVG_ASSIGN(const std::unique_ptr<engine::Context> context,
             NewContextFor(runtime, &opened.reader, kLayoutContext, 1));
  KVG_ASSIGN(AtomicFile file, AtomicFile::Create(path, FolderOf(path)));
  KVG_ASSIGN(const exchange::Exported exported,
             exchange::ExportPlanes(*context, *model, opened.reader, &file));
  KVG_RETURN(RefuseExisting(path, force));
  KVG_RETURN(file.Commit());
  return PlanesExported{
      .entry = opened.entry, .bytes = exported.file_bytes, .tensors = exported.n_tensors};
}

Result<PlanesImported> RunImportPlanes(Runtime& runtime, const std::string& path,
                                       const std::string& name) {
  if (!name.empty()) KVG_RETURN(store::CheckName(name));
  KVG_ASSIGN(const MappedFile file, MappedFile::Open(path, /*populate=*/false));
  KVG_ASSIGN(store::Store * store, runtime.OpenStore());
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  KVG_ASSIGN(const std::unique_ptr<engine::Context> context, runtime.NewContext(kLayoutContext, 1));
  KVG_ASSIGN(exchange::Imported imported,
             exchange::ImportPlanes(*context, *model, file.bytes(), path, kProducer));
  std::string as = name;
  if (as.empty()) {
    KVG_ASSIGN(as, FreeName(*store, imported.parts.manifest));
  }
  PlanesImported out;
  out.identical = imported.identical;
  out.difference = imported.difference;
  KVG_ASSIGN(out.entry, store->Put(imported.parts, imported.image, as));
  return out;
}

bool IsSafetensorsFile(const std::string& path) {
  const Result<MappedFile> file = MappedFile::Open(path, /*populate=*/false);
  return file.ok() && exchange::LooksLikeSafetensors(file->bytes());
}

}  // namespace kvgraft::app
