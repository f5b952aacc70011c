#include "kvgraft/app/doctor.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kvgraft/app/models.h"
#include "kvgraft/core/file.h"
#include "kvgraft/session/compose.h"

namespace kvgraft::app {
namespace {

void CheckStore(Runtime& runtime, DoctorReport* report) {
  auto store = runtime.OpenStore(/*evict=*/false);
  report->checks.push_back(
      {"store opens", store.ok(), store.ok() ? report->store_root : store.status().message()});
  if (!store.ok()) return;
  report->store_warnings = (*store)->warnings();
  auto entries = (*store)->List();
  auto used = (*store)->UsedBytes();
  report->checks.push_back({"store lists", entries.ok() && used.ok(),
                            !entries.ok() ? entries.status().message()
                            : !used.ok()  ? used.status().message()
                                          : std::to_string(entries->size()) + " artifacts"});
  if (entries.ok()) report->store_entries = entries->size();
  if (used.ok()) report->store_bytes = *used;

  struct stat info = {};
  const bool found = stat(report->store_root.c_str(), &info) == 0;
  const bool is_private = found && (info.st_mode & 077) == 0;
  report->checks.push_back({"store is private", is_private,
                            is_private ? "mode 0700" : "others can read the folder: chmod 700"});
  struct statvfs disk = {};
  if (statvfs(report->store_root.c_str(), &disk) == 0) {
    report->disk_free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
    const bool room = report->disk_free_bytes > report->free_floor_bytes;
    report->checks.push_back({"disk has room", room,
                              FormatBytes(report->disk_free_bytes) + " free, " +
                                  FormatBytes(report->free_floor_bytes) + " are to stay free"});
  }
  const bool within = report->budget_bytes == 0 || report->store_bytes <= report->budget_bytes;
  report->checks.push_back({"store is within its budget", within,
                            FormatBytes(report->store_bytes) + " of " +
                                (report->budget_bytes == 0 ? std::string("no limit")
                                                           : FormatBytes(report->budget_bytes))});
}

void CheckCache(DoctorReport* report) {
  Status status = MakePrivateDirs(report->cache_dir);
  if (status.ok()) status = WriteFileAtomic(JoinPath(report->cache_dir, ".doctor"), "ok\n");
  report->checks.push_back({"cache folder is writable", status.ok(),
                            status.ok() ? report->cache_dir : status.message()});
}

void DescribePlanes(engine::Context& context, DoctorReport* report) {
  const auto layout = context.Layout();
  if (!layout.ok()) {
    report->planes_refused = report->keeps_position = layout.status().message();
    return;
  }
  report->keeps_position = session::CheckMovable(context).message();
  for (const StreamSpec& s : (*layout)->streams) {
    const bool window = (*layout)->tables[s.table] == TableKind::kWindow;
    StreamGroup group{
        StreamKindName(s.kind), DTypeName(s.type), 1, s.n_heads, s.head_dim, window, s.rope >= 0};
    const auto same = [&](const StreamGroup& g) {
      return g.kind == group.kind && g.type == group.type && g.heads == group.heads &&
             g.head_dim == group.head_dim && g.window == group.window &&
             g.position == group.position;
    };
    const auto at = std::find_if(report->planes.begin(), report->planes.end(), same);
    if (at != report->planes.end()) {
      ++at->layers;
    } else {
      report->planes.push_back(std::move(group));
    }
  }
}

}  // namespace

bool DoctorReport::ok() const {
  return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.ok; });
}

Result<DoctorReport> RunDoctorReport(Runtime& runtime, bool exhaustive) {
  const Config& config = runtime.config();
  DoctorReport report;
  report.engine = GetEngineInfo();
  report.threads = config.n_threads;
  report.store_root = config.store_root;
  report.cache_dir = config.cache_dir;
  report.models_dir = config.models_dir;
  report.budget_bytes = config.budget_bytes;
  report.free_floor_bytes = config.free_floor_bytes;
  CheckStore(runtime, &report);
  CheckCache(&report);
  if (config.model.empty()) return report;

  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  report.model = model->info();
  KVG_ASSIGN(session::ExactProfile profile, exhaustive ? runtime.RunSelfTest() : runtime.Profile());
  report.profile = profile;
  if (!profile.key.empty()) {
    report.profile_path = JoinPath(runtime.ProfileDir(), profile.key + ".json");
  }
  KVG_ASSIGN(const engine::ContextOptions options, runtime.ContextFor(256));
  KVG_ASSIGN(const std::unique_ptr<engine::Context> context, model->NewContext(options));
  report.drift = runtime.KeptDrift(context->identity());
  report.checks.push_back(
      {"a configuration is exact", profile.holds,
       profile.holds ? std::string("attention ") +
                           (profile.attention == engine::Attention::kOn ? "flash" : "plain") +
                           ", rows by " + std::to_string(profile.row_quantum)
                     : "none of those tried: states restore, but are not proven bit-exact"});
  DescribePlanes(*context, &report);
  return report;
}

}  // namespace kvgraft::app
