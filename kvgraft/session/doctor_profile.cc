// Keeping what the self-test found.
#include <limits>
#include <nlohmann/json.hpp>

#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/session/doctor.h"

namespace kvgraft::session {
namespace {

using Json = nlohmann::json;

constexpr int kProfileVersion = 1;
constexpr uint64_t kMaxProfileBytes = 1 << 20;

const char* AttentionName(engine::Attention attention) {
  return attention == engine::Attention::kOn    ? "flash"
         : attention == engine::Attention::kOff ? "plain"
                                                : "auto";
}

// These follow from the attention mode, which is what a profile chooses.
bool FollowsAttention(const std::string& field) {
  return field == "cache.attention" || field == "cache.v_layout";
}

Json TrialToJson(const Trial& t) {
  return {{"attention", t.attention},
          {"row_quantum", t.row_quantum},
          {"splits", t.splits},
          {"identical", t.identical},
          {"restore_tried", t.restore_tried},
          {"restore_identical", t.restore_identical},
          {"max_abs_logit_diff", t.max_abs_logit_diff},
          {"prefill_tokens_per_s", t.prefill_tokens_per_s},
          {"error", t.error}};
}

Trial TrialFromJson(const Json& j) {
  Trial t;
  t.attention = j.at("attention").get<std::string>();
  t.row_quantum = j.at("row_quantum").get<uint32_t>();
  t.splits = j.at("splits").get<uint32_t>();
  t.identical = j.at("identical").get<uint32_t>();
  t.restore_tried = j.at("restore_tried").get<bool>();
  t.restore_identical = j.at("restore_identical").get<bool>();
  // JSON has no infinities: they arrive as null.
  const Json& diff = j.at("max_abs_logit_diff");
  t.max_abs_logit_diff =
      diff.is_null() ? std::numeric_limits<double>::infinity() : diff.get<double>();
  t.prefill_tokens_per_s = j.at("prefill_tokens_per_s").get<double>();
  t.error = j.at("error").get<std::string>();
  return t;
}

Result<StateIdentity> IdentityFor(engine::Model& model, const DoctorOptions& options) {
  engine::ContextOptions o = options.context;
  o.n_ctx = 64;
  o.embeddings = false;
  o.row_quantum = 1;
  if (o.attention == engine::Attention::kAuto) o.attention = engine::Attention::kOn;
  Result<std::unique_ptr<engine::Context>> context = model.NewContext(o);
  if (!context.ok() && options.context.attention == engine::Attention::kAuto) {
    o.attention = engine::Attention::kOff;
    context = model.NewContext(o);
  }
  KVG_RETURN(context.status().Annotate("self-test"));
  return (*context)->identity();
}

Result<ExactProfile> LoadProfile(const std::string& path, const std::string& key) {
  KVG_ASSIGN(const std::string text, ReadFile(path, kMaxProfileBytes));
  KVG_ASSIGN(ExactProfile profile, ProfileFromJson(text));
  if (profile.key != key) {
    return Status(Code::kCorrupt, "profile " + path + ": its key is " + profile.key);
  }
  return profile;
}

Status KeepProfile(const std::string& dir, const std::string& path, const ExactProfile& profile) {
  KVG_RETURN(MakePrivateDirs(dir));
  return WriteFileAtomic(path, ProfileToJson(profile));
}

}  // namespace

std::string ProfileKey(const StateIdentity& identity, const engine::ContextOptions& options) {
  std::string text = "kvgraft exactness profile 1\n";
  for (const IdentityField& f : identity.compat) {
    if (!FollowsAttention(f.name)) text += f.name + "=" + f.value + "\n";
  }
  text += "build\n";
  for (const IdentityField& f : identity.build) text += f.name + "=" + f.value + "\n";
  text += "options\nattention=" + std::string(AttentionName(options.attention)) +
          "\nn_ubatch=" + std::to_string(options.n_ubatch) + "\n";
  return Sha256Hex(text);
}

std::string ProfileToJson(const ExactProfile& profile) {
  Json trials = Json::array();
  for (const Trial& t : profile.trials) trials.push_back(TrialToJson(t));
  const Json json = {{"version", kProfileVersion},
                     {"holds", profile.holds},
                     {"attention", AttentionName(profile.attention)},
                     {"row_quantum", profile.row_quantum},
                     {"n_tokens", profile.n_tokens},
                     {"key", profile.key},
                     {"created", profile.created},
                     {"trials", std::move(trials)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ExactProfile> ProfileFromJson(std::string_view json) {
  try {
    const Json j = Json::parse(json);
    const int version = j.at("version").get<int>();
    if (version != kProfileVersion) {
      return Status(Code::kUnsupported, "profile: version " + std::to_string(version) +
                                            ", this program reads " +
                                            std::to_string(kProfileVersion));
    }
    ExactProfile profile;
    profile.holds = j.at("holds").get<bool>();
    const std::string attention = j.at("attention").get<std::string>();
    if (attention != "flash" && attention != "plain") {
      return Status(Code::kCorrupt,
                    "profile: attention is '" + attention + "', expected flash or plain");
    }
    profile.attention = attention == "flash" ? engine::Attention::kOn : engine::Attention::kOff;
    profile.row_quantum = j.at("row_quantum").get<uint32_t>();
    if (profile.row_quantum == 0 || profile.row_quantum > (1u << 16)) {
      return Status(Code::kCorrupt, "profile: row_quantum is " +
                                        std::to_string(profile.row_quantum) +
                                        ", expected 1 .. 65536");
    }
    profile.n_tokens = j.at("n_tokens").get<uint32_t>();
    profile.key = j.at("key").get<std::string>();
    profile.created = j.at("created").get<std::string>();
    for (const Json& t : j.at("trials")) profile.trials.push_back(TrialFromJson(t));
    return profile;
  } catch (const Json::exception& e) {
    return Status(Code::kCorrupt, std::string("profile: not the JSON of a profile: ") + e.what());
  }
}

Result<ExactProfile> LoadOrRunDoctor(engine::Model& model, const DoctorOptions& options,
                                     const std::string& dir, const std::function<void()>& on_run,
                                     const engine::Progress& progress) {
  KVG_ASSIGN(const StateIdentity identity, IdentityFor(model, options));
  const std::string key = ProfileKey(identity, options.context);
  const std::string path = JoinPath(dir, key + ".json");
  if (!options.exhaustive) {
    Result<ExactProfile> kept = LoadProfile(path, key);
    if (kept.ok()) return kept;
  }
  if (on_run) on_run();
  KVG_ASSIGN(ExactProfile profile, RunDoctor(model, options, progress));
  profile.key = key;
  // A profile that cannot be kept is as good for this run.
  const Status kept = KeepProfile(dir, path, profile);
  if (!kept.ok()) profile.keep_error = kept.message();
  return profile;
}

}  // namespace kvgraft::session
