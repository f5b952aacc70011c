// Keeping what a calibration has found, beside the self-test's profile.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/session/drift.h"

namespace kvgraft::session {
namespace {

using Json = nlohmann::json;

constexpr int kRecordVersion = 1;
constexpr uint64_t kMaxRecordBytes = 1 << 20;

Status Keep(const std::string& dir, const DriftRecord& record) {
  KVG_RETURN(MakePrivateDirs(dir));
  return WriteFileAtomic(DriftRecordPath(dir, record.key, record.link_tokens),
                         DriftRecordToJson(record));
}

// JSON has no infinities: they arrive as null.
double Figure(const Json& j) {
  return j.is_null() ? std::numeric_limits<double>::infinity() : j.get<double>();
}

}  // namespace

std::string DriftKey(const StateIdentity& identity) {
  return Sha256Hex("kvgraft drift record 1\n" + identity.CompatId() + "\n");
}

std::string DriftRecordPath(const std::string& dir, const std::string& key, uint32_t link_tokens) {
  return JoinPath(dir, key + ".drift-" + std::to_string(link_tokens) + ".json");
}

std::string DriftRecordToJson(const DriftRecord& r) {
  Json trials = Json::array();
  for (const DriftTrial& t : r.trials) {
    trials.push_back({{"kind", t.kind}, {"delta", t.delta}, {"kl", t.kl}});
  }
  const Json json = {{"version", kRecordVersion},
                     {"usable", r.usable},
                     {"reason", r.reason},
                     {"threshold", r.threshold},
                     {"link_tokens", r.link_tokens},
                     {"held_tokens", r.held_tokens},
                     {"n_good", r.n_good},
                     {"good_passed", r.good_passed},
                     {"n_bad", r.n_bad},
                     {"bad_caught", r.bad_caught},
                     {"n_harmful", r.n_harmful},
                     {"harmful_caught", r.harmful_caught},
                     {"good_kl", r.good_kl},
                     {"harm_kl", r.harm_kl},
                     {"key", r.key},
                     {"created", r.created},
                     {"trials", std::move(trials)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<DriftRecord> DriftRecordFromJson(std::string_view text) {
  try {
    const Json j = Json::parse(text);
    const int version = j.at("version").get<int>();
    if (version != kRecordVersion) {
      return Status(Code::kUnsupported, "drift record: version " + std::to_string(version) +
                                            ", this program reads " +
                                            std::to_string(kRecordVersion));
    }
    DriftRecord r;
    r.usable = j.at("usable").get<bool>();
    r.reason = j.at("reason").get<std::string>();
    r.threshold = j.at("threshold").get<double>();
    r.link_tokens = j.at("link_tokens").get<uint32_t>();
    r.held_tokens = j.at("held_tokens").get<uint32_t>();
    r.n_good = j.at("n_good").get<uint32_t>();
    r.good_passed = j.at("good_passed").get<uint32_t>();
    r.n_bad = j.at("n_bad").get<uint32_t>();
    r.bad_caught = j.at("bad_caught").get<uint32_t>();
    r.n_harmful = j.at("n_harmful").get<uint32_t>();
    r.harmful_caught = j.at("harmful_caught").get<uint32_t>();
    r.good_kl = Figure(j.at("good_kl"));
    r.harm_kl = Figure(j.at("harm_kl"));
    r.key = j.at("key").get<std::string>();
    r.created = j.at("created").get<std::string>();
    for (const Json& t : j.at("trials")) {
      r.trials.push_back(
          {t.at("kind").get<std::string>(), Figure(t.at("delta")), Figure(t.at("kl"))});
    }
    return r;
  } catch (const Json::exception& e) {
    return Status(Code::kCorrupt, std::string("drift record: not the JSON of one: ") + e.what());
  }
}

Result<DriftRecord> LoadDriftRecord(const std::string& dir, const std::string& key,
                                    uint32_t link_tokens) {
  const std::string path = DriftRecordPath(dir, key, link_tokens);
  KVG_ASSIGN(const std::string text, ReadFile(path, kMaxRecordBytes));
  KVG_ASSIGN(DriftRecord record, DriftRecordFromJson(text));
  if (record.key != key || record.link_tokens != link_tokens) {
    return Status(Code::kCorrupt, "drift record " + path + ": is of another model or link");
  }
  return record;
}

std::vector<DriftRecord> LoadDriftRecords(const std::string& dir, const std::string& key) {
  std::vector<DriftRecord> records;
  std::error_code error;
  const std::string start = key + ".drift-";
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.rfind(start, 0) != 0) continue;
    const auto link = static_cast<uint32_t>(std::strtoul(name.c_str() + start.size(), nullptr, 10));
    Result<DriftRecord> record = LoadDriftRecord(dir, key, link);
    if (record.ok()) records.push_back(std::move(*record));
  }
  std::sort(records.begin(), records.end(), [](const DriftRecord& a, const DriftRecord& b) {
    return a.link_tokens < b.link_tokens;
  });
  return records;
}

Result<std::vector<DriftRecord>> LoadOrCalibrateDrift(
    engine::Model& model, const StateIdentity& identity, const DriftOptions& options,
    std::span<const uint32_t> link_tokens, const std::string& dir,
    const std::function<void()>& on_run, const engine::Progress& progress) {
  const std::string key = DriftKey(identity);
  std::vector<DriftRecord> records;
  std::vector<uint32_t> missing;
  for (const uint32_t link : link_tokens) {
    Result<DriftRecord> kept = LoadDriftRecord(dir, key, link);
    if (kept.ok()) {
      records.push_back(std::move(*kept));
    } else {
      missing.push_back(link);
    }
  }
  if (missing.empty()) return records;
  if (on_run) on_run();
  KVG_ASSIGN(std::vector<DriftRecord> found, CalibrateDrift(model, options, missing, progress));
  for (DriftRecord& record : found) {
    record.key = key;
    // A record that cannot be kept is as good for this run.
    const Status kept = Keep(dir, record);
    if (!kept.ok()) record.keep_error = kept.message();
    records.push_back(std::move(record));
  }
  std::vector<DriftRecord> in_order;
  for (const uint32_t link : link_tokens) {
    in_order.push_back(*std::find_if(records.begin(), records.end(),
                                     [link](const auto& r) { return r.link_tokens == link; }));
  }
  return in_order;
}

}  // namespace kvgraft::session
