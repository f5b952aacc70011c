// kvgraft export, import
#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

struct TransferFlags {
  std::string ref, path, name;
  bool force = false;
};

Status RunExport(Shell& shell, const TransferFlags& flags) {
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
  CLI::App* to = AddVerb(shell, "export", "copy an artifact to a file");
  to->add_option("REF", flags->ref, "name, id, or 6 digits of it or more")->required();
  to->add_option("FILE", flags->path, "the .kvg file to write")->required();
  to->add_flag("--force", flags->force, "overwrite the file");
  AddStoreFlags(to, shell);
  to->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunExport(shell, *flags); }; });

  CLI::App* from = AddVerb(shell, "import", "verify a .kvg file and put it into the store");
  from->add_option("FILE", flags->path, "the .kvg file")->required();
  from->add_option("--name", flags->name, "name; default: the one that the file suggests")
      ->type_name("NAME");
  AddStoreFlags(from, shell);
  from->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunImport(shell, *flags); }; });
}

}  // namespace kvgraft::cli
