// kvgraft doctor, version
#include "kvgraft/app/doctor.h"
#include "kvgraft/app/version.h"
#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

Json EngineJson(const app::EngineInfo& engine) {
  return {{"version", engine.version},
          {"ggml", engine.ggml},
          {"build", engine.build},
          {"cpu_features", engine.cpu_features},
          {"system_info", engine.system_info}};
}

const char* AttentionName(engine::Attention attention) {
  return attention == engine::Attention::kOn ? "flash" : "plain";
}

Json ProfileJson(const app::DoctorReport& report) {
  if (!report.profile) return nullptr;
  const session::ExactProfile& profile = *report.profile;
  Json json;
  json["holds"] = profile.holds;
  json["attention"] = profile.holds ? Json(AttentionName(profile.attention)) : Json(nullptr);
  json["row_quantum"] = profile.holds ? Json(profile.row_quantum) : Json(nullptr);
  json["n_tokens"] = profile.n_tokens;
  json["created"] = profile.created;
  json["path"] = report.profile_path;
  json["trials"] = Json::array();
  for (const auto& trial : profile.trials) {
    json["trials"].push_back({{"attention", trial.attention},
                              {"row_quantum", trial.row_quantum},
                              {"splits", trial.splits},
                              {"identical", trial.identical},
                              {"max_abs_logit_diff", trial.max_abs_logit_diff},
                              {"prefill_tokens_per_s", trial.prefill_tokens_per_s},
                              {"error", trial.error.empty() ? Json(nullptr) : Json(trial.error)}});
  }
  return json;
}

Json DriftJson(const session::DriftRecord& r) {
  return {{"link_tokens", r.link_tokens},
          {"held_tokens", r.held_tokens},
          {"usable", r.usable},
          {"reason", r.reason.empty() ? Json(nullptr) : Json(r.reason)},
          {"threshold", r.threshold},
          {"good", r.n_good},
          {"good_passed", r.good_passed},
          {"bad", r.n_bad},
          {"bad_caught", r.bad_caught},
          {"harmful", r.n_harmful},
          {"harmful_caught", r.harmful_caught},
          {"good_kl", r.good_kl},
          {"harm_kl", r.harm_kl},
          {"created", r.created}};
}

void PrintDrift(Console& console, const std::vector<session::DriftRecord>& records) {
  if (records.empty()) return;
  std::vector<std::vector<std::string>> rows = {
      {"DRIFT GATE", "LIMIT", "GOOD PASS", "BROKEN CAUGHT", "HARMFUL CAUGHT", ""}};
  for (const session::DriftRecord& r : records) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%.3f nats", r.threshold);
    const auto share = [](uint32_t part, uint32_t all) {
      return std::to_string(part) + " of " + std::to_string(all);
    };
    rows.push_back({"link " + std::to_string(r.link_tokens), limit, share(r.good_passed, r.n_good),
                    share(r.bad_caught, r.n_bad), share(r.harmful_caught, r.n_harmful),
                    r.usable ? "" : "composing is off: " + r.reason});
  }
  console.Print("\n");
  console.Print(FormatTable(rows, "lrrrrl"));
}

Json ReportJson(const app::DoctorReport& report) {
  Json json;
  json["ok"] = report.ok();
  json["version"] = app::kVersion;
  json["engine"] = EngineJson(report.engine);
  json["threads"] = report.threads;
  json["store"] = {{"path", report.store_root},
                   {"artifacts", report.store_entries},
                   {"bytes", report.store_bytes},
                   {"budget_bytes", report.budget_bytes},
                   {"free_floor_bytes", report.free_floor_bytes},
                   {"disk_free_bytes", report.disk_free_bytes},
                   {"warnings", report.store_warnings}};
  json["cache_dir"] = report.cache_dir;
  json["models_dir"] = report.models_dir;
  json["model"] = nullptr;
  if (const auto& model = report.model) {
    json["model"] = {{"name", model->name},
                     {"description", model->description},
                     {"architecture", model->architecture},
                     {"n_ctx_train", model->n_ctx_train},
                     {"sliding_window", model->sliding_window},
                     {"state_alignment", model->state_alignment},
                     {"chat_template", model->has_chat_template}};
  }
  json["profile"] = ProfileJson(report);
  json["planes"] = nullptr;
  if (report.model && report.planes_refused.empty()) {
    json["planes"] = Json::array();
    for (const auto& g : report.planes) {
      json["planes"].push_back({{"kind", g.kind},
                                {"layers", g.layers},
                                {"heads", g.heads},
                                {"head_dim", g.head_dim},
                                {"type", g.type},
                                {"window", g.window},
                                {"position", g.position}});
    }
  }
  json["planes_refused"] =
      report.planes_refused.empty() ? Json(nullptr) : Json(report.planes_refused);
  json["keeps_position"] =
      report.keeps_position.empty() ? Json(nullptr) : Json(report.keeps_position);
  json["drift"] = Json::array();
  for (const auto& record : report.drift) json["drift"].push_back(DriftJson(record));
  json["checks"] = Json::array();
  for (const auto& check : report.checks) {
    json["checks"].push_back({{"name", check.name}, {"ok", check.ok}, {"detail", check.detail}});
  }
  return json;
}

std::string Number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// "key: 30 layers, 3 x 64 f16, moves"
void PrintPlanes(Console& console, const app::DoctorReport& report) {
  if (!report.planes_refused.empty()) {
    console.PrintLine("\n" + report.planes_refused);
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"STATE", "LAYERS", "HEADS", "DIM", "TYPE", ""}};
  for (const auto& g : report.planes) {
    rows.push_back(
        {g.kind, std::to_string(g.layers), std::to_string(g.heads), std::to_string(g.head_dim),
         g.type,
         std::string(g.window ? "sliding window " : "") + (g.position ? "turned when moved" : "")});
  }
  console.Print("\n" + FormatTable(rows, "lrrrll"));
  if (!report.keeps_position.empty()) console.PrintLine(report.keeps_position);
}

void PrintReport(Console& console, const app::DoctorReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"kvgraft", app::kVersion},
      {"engine", report.engine.version + ", ggml " + report.engine.ggml},
      {"processor", report.engine.cpu_features},
      {"threads", std::to_string(report.threads)},
      {"models", report.models_dir},
  };
  if (report.model)
    rows.push_back({"model", report.model->description + ", " + report.model->name});
  console.Print(FormatTable(rows, "ll"));
  console.Print("\n");
  rows.clear();
  for (const auto& check : report.checks) {
    rows.push_back({check.ok ? "ok" : "FAILED", check.name, check.detail});
  }
  console.Print(FormatTable(rows, "lll"));
  for (const std::string& warning : report.store_warnings) console.PrintLine("store: " + warning);
  if (!report.profile) return;
  console.Print("\n");
  rows = {{"ATTENTION", "ROWS", "IDENTICAL", "LOGITS APART", "PREFILL", ""}};
  for (const auto& trial : report.profile->trials) {
    if (!trial.error.empty()) {
      rows.push_back(
          {trial.attention, std::to_string(trial.row_quantum), "-", "-", "-", trial.error});
      continue;
    }
    const bool chosen = report.profile->holds && trial.row_quantum == report.profile->row_quantum &&
                        trial.attention == AttentionName(report.profile->attention);
    rows.push_back({trial.attention, std::to_string(trial.row_quantum),
                    std::to_string(trial.identical) + " of " + std::to_string(trial.splits),
                    Number("%.3g", trial.max_abs_logit_diff),
                    Number("%.0f/s", trial.prefill_tokens_per_s), chosen ? "<- used" : ""});
  }
  console.Print(FormatTable(rows, "lrrrrl"));
  PrintPlanes(console, report);
  PrintDrift(console, report.drift);
}

Status RunDoctorVerb(Shell& shell, bool again) {
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  if (again && runtime->config().model.empty()) {
    return Status(Code::kInvalidArgument, "doctor: --again needs a model, -m");
  }
  auto report = app::RunDoctorReport(*runtime, again);
  if (!report.ok()) return report.status().Annotate("doctor");
  if (shell.console.json) {
    shell.console.PrintJson(ReportJson(*report));
  } else {
    PrintReport(shell.console, *report);
  }
  if (report->ok()) return Status::Ok();
  std::string failed;
  for (const auto& check : report->checks) {
    if (!check.ok) failed += (failed.empty() ? "" : ", ") + check.name;
  }
  return Status(Code::kInternal, "doctor: not so: " + failed);
}

Status RunVersionVerb(Shell& shell) {
  const app::EngineInfo engine = app::GetEngineInfo();
  if (shell.console.json) {
    shell.console.PrintJson({{"version", app::kVersion}, {"engine", EngineJson(engine)}});
  } else {
    shell.console.PrintLine(std::string("kvgraft ") + app::kVersion);
    shell.console.PrintLine("libllama " + engine.version + ", ggml " + engine.ggml);
  }
  return Status::Ok();
}

}  // namespace

void AddDoctorVerbs(Shell& shell) {
  CLI::App* doctor = AddVerb(shell, "doctor", "engine, store, and what is exact on this machine");
  auto again = std::make_shared<bool>(false);
  doctor->add_flag("--again", *again, "run the self-test again, over every configuration");
  AddModelFlags(doctor, shell);
  AddStoreFlags(doctor, shell);
  doctor->callback(
      [&shell, again] { shell.action = [&shell, again] { return RunDoctorVerb(shell, *again); }; });

  CLI::App* version = AddVerb(shell, "version", "versions of the program and its engine");
  version->callback([&shell] { shell.action = [&shell] { return RunVersionVerb(shell); }; });
}

}  // namespace kvgraft::cli
