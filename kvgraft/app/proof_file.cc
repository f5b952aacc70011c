#include "kvgraft/app/proof_file.h"

#include <nlohmann/json.hpp>

#include "kvgraft/app/figure_internal.h"
#include "kvgraft/app/version.h"
#include "kvgraft/core/file.h"
#include "kvgraft/core/utc.h"

namespace kvgraft::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxFileBytes = 256 << 20;

Json SettingsJson(const ProofSettings& s) {
  return {{"profile", s.profile},
          {"attention", s.attention},
          {"row_quantum", s.row_quantum},
          {"seed", s.seed},
          {"max_tokens", s.max_tokens},
          {"texts", s.texts},
          {"other_process", s.other_process}};
}

Status CompareSettings(const std::string& path, const Json& kept, const ProofSettings& settings) {
  const Json wanted = SettingsJson(settings);
  for (const auto& [name, value] : wanted.items()) {
    if (kept.at(name) == value) continue;
    return Status(Code::kMismatch, path + ": its proof has " + name + " " + kept.at(name).dump() +
                                       ", this run " + value.dump() +
                                       "; use the same flags, or another --out");
  }
  return Status::Ok();
}

Json SummaryJson(const ProveOutcome& outcome) {
  const eval::ProveReport& report = outcome.report;
  Json json;
  json["samples"] = report.samples.size();
  json["identical"] = report.n_identical();
  json["kl_max"] = Figure(report.kl_max());
  json["max_abs_logit_diff"] = Figure(report.max_abs_logit_diff());
  json["ordinary_max_abs_logit_diff"] = Figure(report.ordinary_max_abs_logit_diff());
  json["new_process_skipped"] = report.new_process_skipped;
  json["attention"] = outcome.context.attention == engine::Attention::kOn ? "flash" : "plain";
  json["row_quantum"] = outcome.context.row_quantum;
  json["self_test_holds"] = outcome.profile.holds;
  json["total_ms"] = outcome.total_ms;
  return json;
}

}  // namespace

std::string ProofSummary(const ProveOutcome& outcome) { return SummaryJson(outcome).dump(); }

Status WriteProof(const std::string& path, const std::string& model, const ProofSettings& settings,
                  const ProveOutcome& outcome) {
  const EngineInfo engine = GetEngineInfo();
  Json json = SummaryJson(outcome);
  json["seed"] = settings.seed;
  json["model"] = model;
  json["date"] = UtcNow();
  json["producer"] = kProducer;
  json["engine"] = {
      {"version", engine.version}, {"ggml", engine.ggml}, {"cpu_features", engine.cpu_features}};
  json["settings"] = SettingsJson(settings);
  json["rows"] = Json::array();
  for (const eval::ProveSample& sample : outcome.report.samples) {
    json["rows"].push_back(Json::parse(eval::SampleToJson(sample)));
  }
  return WriteFileAtomic(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status ReadProof(const std::string& path, const ProofSettings& settings, ProveOutcome* outcome) {
  KVG_ASSIGN(const std::string text, ReadFile(path, kMaxFileBytes));
  try {
    const Json json = Json::parse(text);
    KVG_RETURN(CompareSettings(path, json.at("settings"), settings));
    outcome->total_ms = json.at("total_ms").get<double>();
    outcome->report.new_process_skipped = json.at("new_process_skipped").get<uint32_t>();
    for (const Json& row : json.at("rows")) {
      KVG_ASSIGN(eval::ProveSample sample, eval::SampleFromJson(row.dump()));
      if (sample.index != outcome->report.samples.size()) {
        return Status(Code::kCorrupt, path + ": sample " + std::to_string(sample.index) +
                                          " stands at place " +
                                          std::to_string(outcome->report.samples.size()));
      }
      outcome->report.samples.push_back(std::move(sample));
    }
  } catch (const Json::exception& e) {
    return Status(Code::kCorrupt, path + ": not a file of prove --out: " + e.what());
  }
  return Status::Ok();
}

}  // namespace kvgraft::app
