// What lives in the store: kvgraft ls, rm, gc, rebuild, pin, unpin, name.
#include <ctime>

#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

std::string ListTable(const Console& console, const std::vector<store::Entry>& entries) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "ID", "TOKENS", "SIZE", "MODEL", "TIER", "USED", "PIN"}};
  const auto now = static_cast<int64_t>(std::time(nullptr));
  for (const auto& entry : entries) {
    rows.push_back({entry.names.empty() ? "-" : Joined(entry.names), ShortId(entry.id),
                    FormatCount(entry.n_tokens), FormatBytes(entry.file_bytes),
                    Excerpt(entry.model_name, 32), entry.tier, FormatAge(entry.last_used_unix, now),
                    entry.pinned ? "pinned" : ""});
  }
  std::string table = FormatTable(rows, "llrrllrl");
  const size_t head = table.find('\n');
  return console.Bold(table.substr(0, head)) + table.substr(head);
}

struct StoreVerb {
  store::Store* store;
  std::unique_ptr<app::Runtime> runtime;
};

Result<StoreVerb> Open(Shell& shell, bool evict = true) {
  StoreVerb opened;
  KVG_ASSIGN(opened.runtime, shell.MakeRuntime());
  KVG_ASSIGN(opened.store, opened.runtime->OpenStore(evict));
  return opened;
}

Status RunLs(Shell& shell, bool ids_only) {
  KVG_ASSIGN(StoreVerb verb, Open(shell));
  KVG_ASSIGN(std::vector<store::Entry> entries, verb.store->List());
  uint64_t bytes = 0;
  for (const auto& entry : entries) bytes += entry.file_bytes;
  if (shell.console.json) {
    Json json;
    json["artifacts"] = Json::array();
    for (const auto& entry : entries) json["artifacts"].push_back(EntryJson(entry));
    json["bytes"] = bytes;
    json["store"] = verb.runtime->config().store_root;
    shell.console.PrintJson(json);
  } else if (ids_only) {
    for (const auto& entry : entries) {
      for (const std::string& name : entry.names) shell.console.PrintLine(name);
      if (entry.names.empty()) shell.console.PrintLine(ShortId(entry.id));
    }
  } else if (entries.empty()) {
    shell.console.Note("nothing is stored in " + verb.runtime->config().store_root);
  } else {
    shell.console.Print(ListTable(shell.console, entries));
  }
  return Status::Ok();
}

Status RunRm(Shell& shell, const std::vector<std::string>& refs) {
  KVG_ASSIGN(StoreVerb verb, Open(shell));
  Json removed = Json::array();
  for (const std::string& ref : refs) {
    auto entry = verb.store->Remove(ref);
    if (!entry.ok()) return entry.status().Annotate("rm");
    removed.push_back(EntryJson(*entry));
    shell.console.PrintLine("removed " + ref);
  }
  if (shell.console.json) shell.console.PrintJson({{"removed", removed}});
  return Status::Ok();
}

Json RebuildJson(const store::RebuildReport& report) {
  return {{"entries", report.entries}, {"quarantined", report.quarantined}};
}

Status RunGc(Shell& shell, bool dry_run) {
  KVG_ASSIGN(StoreVerb verb, Open(shell, /*evict=*/false));
  KVG_ASSIGN(store::GcReport report, verb.store->Gc(dry_run));
  if (shell.console.json) {
    Json json;
    json["dry_run"] = dry_run;
    json["evicted"] = Json::array();
    for (const auto& entry : report.evicted) json["evicted"].push_back(EntryJson(entry));
    json["removed_temp"] = report.removed_temp;
    json["bytes_freed"] = report.bytes_freed;
    json["bytes_used"] = report.bytes_used;
    json["budget_bytes"] = verb.store->options().budget_bytes;
    shell.console.PrintJson(json);
    return Status::Ok();
  }
  const std::string what = dry_run ? "would evict " : "evicted ";
  for (const auto& entry : report.evicted) {
    shell.console.PrintLine(what + ShortId(entry.id) + " " + Joined(entry.names) + " " +
                            FormatBytes(entry.file_bytes));
  }
  shell.console.PrintLine(what + std::to_string(report.evicted.size()) + " artifacts, " +
                          FormatBytes(report.bytes_freed) + "; in use " +
                          FormatBytes(report.bytes_used));
  return Status::Ok();
}

Status RunRebuild(Shell& shell) {
  KVG_ASSIGN(StoreVerb verb, Open(shell));
  KVG_ASSIGN(store::RebuildReport report, verb.store->Rebuild());
  if (shell.console.json) {
    shell.console.PrintJson(RebuildJson(report));
  } else {
    for (const std::string& line : report.quarantined) {
      shell.console.PrintLine("quarantined " + line);
    }
    shell.console.PrintLine(std::to_string(report.entries) + " artifacts");
  }
  return Status::Ok();
}

// Verbs that change one entry and print it.
Status RunChange(Shell& shell, const std::string& ref, const std::string& done,
                 const std::function<Status(store::Store&)>& change) {
  KVG_ASSIGN(StoreVerb verb, Open(shell));
  KVG_RETURN(change(*verb.store));
  KVG_ASSIGN(store::Entry entry, verb.store->Find(ref));
  if (shell.console.json) {
    shell.console.PrintJson(EntryJson(entry));
  } else {
    shell.console.PrintLine(ShortId(entry.id) + " " + done);
  }
  return Status::Ok();
}

CLI::App* AddPlain(Shell& shell, const char* name, const char* text,
                   const std::function<Status()>& run) {
  CLI::App* verb = AddVerb(shell, name, text);
  AddStoreFlags(verb, shell);
  verb->callback([&shell, run] { shell.action = run; });
  return verb;
}

}  // namespace

Json EntryJson(const store::Entry& entry) {
  Json json;
  json["id"] = entry.id;
  json["names"] = entry.names;
  json["tokens"] = entry.n_tokens;
  json["image_tokens"] = entry.n_image_tokens;
  json["bytes"] = entry.file_bytes;
  json["model"] = entry.model_name;
  json["tier"] = entry.tier;
  json["created"] = entry.created;
  json["last_used_unix"] = entry.last_used_unix;
  json["pinned"] = entry.pinned;
  json["parent"] = entry.parent.empty() ? Json(nullptr) : Json(entry.parent);
  json["compat_id"] = entry.compat_id;
  return json;
}

void AddStoreVerbs(Shell& shell) {
  auto ids_only = std::make_shared<bool>(false);
  AddPlain(shell, "ls", "list the artifacts, last used first", [&shell, ids_only] {
    return RunLs(shell, *ids_only);
  })->add_flag("--refs", *ids_only, "only names, or ids where there is none");

  auto refs = std::make_shared<std::vector<std::string>>();
  AddPlain(shell, "rm", "remove artifacts; of several names only the one given",
           [&shell, refs] { return RunRm(shell, *refs); })
      ->add_option("REF", *refs, "name, id, or 6 digits of it or more")
      ->required();

  auto dry_run = std::make_shared<bool>(false);
  AddPlain(shell, "gc", "evict down to the budget, remove leftovers", [&shell, dry_run] {
    return RunGc(shell, *dry_run);
  })->add_flag("--dry-run", *dry_run, "only say what would be evicted");
  AddPlain(shell, "rebuild", "make the catalog again from the files",
           [&shell] { return RunRebuild(shell); });

  for (const bool pin : {true, false}) {
    auto ref = std::make_shared<std::string>();
    AddPlain(shell, pin ? "pin" : "unpin",
             pin ? "protect an artifact from eviction" : "let an artifact be evicted again",
             [&shell, ref, pin] {
               return RunChange(shell, *ref, pin ? "pinned" : "unpinned",
                                [&](store::Store& store) { return store.SetPinned(*ref, pin); });
             })
        ->add_option("REF", *ref, "name, id, or 6 digits of it or more")
        ->required();
  }

  auto ref = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  CLI::App* verb =
      AddPlain(shell, "name", "give an artifact a name; an existing name moves", [=, &shell] {
        return RunChange(shell, *ref, "is named " + *name,
                         [&](store::Store& store) { return store.SetName(*ref, *name); });
      });
  verb->add_option("REF", *ref, "name, id, or 6 digits of it or more")->required();
  verb->add_option("NAME", *name, "the name")->required();
}

}  // namespace kvgraft::cli
