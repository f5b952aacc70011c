// kvgraft export, import
#include "kvgraft/app/exchange.h"
#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

constexpr char kSafetensors[] = "safetensors";

struct TransferFlags {
  std::string ref, path, name;
  std::string format;  // empty: kvg for an export, what the file is for an import
  bool force = false;
};

void AddFormatFlag(CLI::App* verb, TransferFlags* flags, const char* text) {
  verb->add_option("--format", flags->format, text)
      ->type_name("kvg|safetensors")
      ->check(CLI::IsMember({"kvg", kSafetensors}));
}

Status ExportPlanes(Shell& shell, const TransferFlags& flags) {
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  auto done = app::RunExportPlanes(*runtime, flags.ref, flags.path, flags.force);
  if (!done.ok()) return done.status().Annotate("export");
  if (shell.console.json) {
    shell.console.PrintJson({{"id", done->entry.id},
                             {"path", flags.path},
                             {"bytes", done->bytes},
                             {"tensors", done->tensors}});
  } else {
    shell.console.PrintLine(ShortId(done->entry.id) + " -> " + flags.path + ", " +
                            FormatCount(done->tensors) + " tensors, " + FormatBytes(done->bytes));
  }
  return Status::Ok();
}

Status ImportPlanes(Shell& shell, const TransferFlags& flags) {
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  auto done = app::RunImportPlanes(*runtime, flags.path, flags.name);
  if (!done.ok()) return done.status().Annotate("import");
  if (!done->identical) {
    shell.console.Note("tier " + done->entry.tier + ", never exact: " + done->difference);
  }
  if (shell.console.json) {
    Json json = EntryJson(done->entry);
    json["identical"] = done->identical;
    shell.console.PrintJson(json);
  } else {
    shell.console.PrintLine(ShortId(done->entry.id) + ": " + FormatCount(done->entry.n_tokens) +
                            " tokens, " + FormatBytes(done->entry.file_bytes) + ", tier " +
                            done->entry.tier);
  }
  return Status::Ok();
}

Status RunExport(Shell& shell, const TransferFlags& flags) {
  if (flags.format == kSafetensors) return ExportPlanes(shell, flags);
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  KVG_ASSIGN(store::Store * store, runtime->OpenStore());
  KVG_ASSIGN(store::Entry entry, store->Find(flags.ref));
  Status status = store->Export(flags.ref, flags.path, flags.force);
  if (!status.ok()) return status.Annotate("export");
  if (shell.console.json) {
    shell.console.PrintJson({{"id", entry.id}, {"path", flags.path}, {"bytes", entry.file_bytes}});
  } else {
    shell.console.PrintLine(ShortId(entry.id) + " -> " + flags.path + ", " +
                            FormatBytes(entry.file_bytes));
  }
  return Status::Ok();
}

Status RunImport(Shell& shell, const TransferFlags& flags) {
  if (!flags.name.empty()) KVG_RETURN(store::CheckName(flags.name));
  if (flags.format == kSafetensors ||
      (flags.format.empty() && app::IsSafetensorsFile(flags.path))) {
    return ImportPlanes(shell, flags);
  }
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  KVG_ASSIGN(store::Store * store, runtime->OpenStore());
  auto entry = store->Import(flags.path, flags.name);
  if (!entry.ok()) return entry.status().Annotate("import");
  if (shell.console.json) {
    shell.console.PrintJson(EntryJson(*entry));
  } else {
    shell.console.PrintLine(ShortId(entry->id) + ": " + FormatCount(entry->n_tokens) + " tokens, " +
                            FormatBytes(entry->file_bytes));
  }
  return Status::Ok();
}

}  // namespace

void AddTransferVerbs(Shell& shell) {
  auto flags = std::make_shared<TransferFlags>();
  CLI::App* to = AddVerb(shell, "export", "write an artifact to a file");
  to->add_option("REF", flags->ref, "name, id, or 6 digits of it or more")->required();
  to->add_option("FILE", flags->path, "the file to write")->required();
  to->add_flag("--force", flags->force, "overwrite the file");
  AddFormatFlag(to, flags.get(), "kvg: a copy (the default); safetensors: arrays, needs -m");
  AddModelFlags(to, shell);
  AddStoreFlags(to, shell);
  to->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunExport(shell, *flags); }; });

  CLI::App* from = AddVerb(shell, "import", "verify a file and put it into the store");
  from->add_option("FILE", flags->path, "the .kvg or safetensors file")->required();
  from->add_option("--name", flags->name, "name; default: the one that the file suggests")
      ->type_name("NAME");
  AddFormatFlag(from, flags.get(), "default: what the file is; safetensors needs -m");
  AddModelFlags(from, shell);
  AddStoreFlags(from, shell);
  from->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunImport(shell, *flags); }; });
}

}  // namespace kvgraft::cli
