#include "kvgraft/artifact/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "kvgraft/artifact/json_check.h"
#include "kvgraft/core/hash.h"

namespace kvgraft::artifact {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxInteger = (1ull << 53) - 1;  // exact in every JSON reader

Status Bad(std::string message) {
  return Status(Code::kInvalidArgument, "manifest: " + std::move(message));
}

Status CheckWord(const char* member, const std::string& s) {
  const bool ok = !s.empty() && s.size() <= 32 && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '-';
  });
  if (ok) return Status::Ok();
  return Bad(fmt::format("{}: \"{}\" is not 1 to 32 of a-z and '-'", member, s));
}

Status CheckHash(const char* member, const std::string& s, bool may_be_empty) {
  if (IsSha256Hex(s) || (may_be_empty && s.empty())) return Status::Ok();
  return Bad(fmt::format("{}: \"{}\" is not 64 lower-case hexadecimal digits", member, s));
}

Status CheckTime(const std::string& s) {
  if (s.empty()) return Status::Ok();
  constexpr std::string_view kPattern = "dddd-dd-ddTdd:dd:ddZ";
  bool ok = s.size() == kPattern.size();
  for (size_t i = 0; ok && i < s.size(); ++i) {
    ok = kPattern[i] == 'd' ? (s[i] >= '0' && s[i] <= '9') : s[i] == kPattern[i];
  }
  return ok ? Status::Ok()
            : Bad(fmt::format("created: \"{}\" is not like 2026-11-30T16:24:09Z", s));
}

Status CheckProbe(const Probe& probe) {
  if (probe.suffix.size() > kMaxProbeSuffix) {
    return Bad(fmt::format("probe.suffix: {} tokens, the limit is {}", probe.suffix.size(),
                           kMaxProbeSuffix));
  }
  const bool negative =
      std::any_of(probe.suffix.begin(), probe.suffix.end(), [](int32_t t) { return t < 0; });
  if (negative || probe.single_token < 0) return Bad("probe: a negative token");
  KVG_RETURN(CheckHash("probe.padded_sha256", probe.padded_sha256, true));
  return CheckHash("probe.single_sha256", probe.single_sha256, true);
}

json FieldsToJson(const std::vector<IdentityField>& fields) {
  json object = json::object();
  for (const IdentityField& f : fields) object[f.name] = f.value;
  return object;
}

// Reads members of one object, remembering the first error.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Fail("", "is not an object");
  }

  const Status& status() const { return status_; }

  // The member, or null after recording an error if it is required.
  const json* Member(const char* name, bool required) {
    if (!status_.ok()) return nullptr;
    const auto at = object_.find(name);
    if (at != object_.end()) return &*at;
    if (required) Fail(name, "is missing");
    return nullptr;
  }

  void Text(const char* name, bool required, std::string* out) {
    const json* v = Member(name, required);
    if (v == nullptr) return;
    if (!v->is_string()) return Fail(name, "is not a string");
    *out = v->get<std::string>();
  }

  template <typename T>
  void Integer(const char* name, bool required, uint64_t limit, T* out) {
    const json* v = Member(name, required);
    if (v == nullptr) return;
    if (!v->is_number_unsigned()) return Fail(name, "is not a non-negative integer");
    const uint64_t value = v->get<uint64_t>();
    if (value > limit) return Fail(name, fmt::format("is {}, the limit is {}", value, limit));
    *out = static_cast<T>(value);
  }

  void Boolean(const char* name, bool required, bool* out) {
    const json* v = Member(name, required);
    if (v == nullptr) return;
    if (!v->is_boolean()) return Fail(name, "is not true or false");
    *out = v->get<bool>();
  }

  void Tokens(const char* name, std::vector<int32_t>* out) {
    const json* v = Member(name, true);
    if (v == nullptr) return;
    if (!v->is_array() || v->size() > kMaxProbeSuffix) {
      return Fail(name, fmt::format("is not an array of at most {} integers", kMaxProbeSuffix));
    }
    for (const json& t : *v) {
      if (!t.is_number_unsigned() || t.get<uint64_t>() > INT32_MAX) {
        return Fail(name, "holds something that is not a token");
      }
      out->push_back(t.get<int32_t>());
    }
  }

  void Integers(const char* name, size_t max_size, std::vector<uint64_t>* out) {
    const json* v = Member(name, false);
    if (v == nullptr) return;
    if (!v->is_array() || v->size() > max_size) {
      return Fail(name, fmt::format("is not an array of at most {} integers", max_size));
    }
    for (const json& i : *v) {
      if (!i.is_number_unsigned() || i.get<uint64_t>() > kMaxInteger) {
        return Fail(name, "holds something that is not an integer below 2^53");
      }
      out->push_back(i.get<uint64_t>());
    }
  }

  void Fields(const char* name, std::vector<IdentityField>* out) {
    const json* v = Member(name, true);
    if (v == nullptr) return;
    if (!v->is_object()) return Fail(name, "is not an object");
    if (v->size() > kMaxIdentityFields) {
      return Fail(name,
                  fmt::format("has {} members, the limit is {}", v->size(), kMaxIdentityFields));
    }
    for (const auto& [key, value] : v->items()) {  // in the order of the names' bytes
      if (!value.is_string()) return Fail(name, "has a member that is not a string: " + key);
      out->push_back({key, value.get<std::string>()});
    }
  }

  void Merge(const Status& status) {
    if (status_.ok()) status_ = status;
  }

 private:
  void Fail(const std::string& name, const std::string& what) {
    if (status_.ok()) status_ = Bad(fmt::format("{}{} {}", where_, name, what));
  }

  const json& object_;
  std::string where_;
  Status status_;
};

Status ReadSchedule(const json& v, ScheduleInfo* out) {
  ObjectReader in(v, "schedule.");
  in.Text("kind", true, &out->kind);
  in.Integer("row_quantum", true, UINT32_MAX, &out->row_quantum);
  in.Text("attention", true, &out->attention);
  in.Integer("n_ubatch", true, UINT32_MAX, &out->n_ubatch);
  in.Boolean("verified", true, &out->verified);
  return in.status();
}

Status ReadProbe(const json& v, Probe* out) {
  ObjectReader in(v, "probe.");
  in.Tokens("suffix", &out->suffix);
  in.Text("padded_sha256", true, &out->padded_sha256);
  in.Integer("single_token", true, INT32_MAX, &out->single_token);
  in.Text("single_sha256", true, &out->single_sha256);
  in.Integer("single_threads", true, UINT32_MAX, &out->single_threads);
  return in.status();
}

Status ReadIdentity(const json& v, StateIdentity* out) {
  ObjectReader in(v, "identity.");
  in.Fields("compat", &out->compat);
  in.Fields("build", &out->build);
  return in.status();
}

Status ReadManifest(const json& v, Manifest* m) {
  ObjectReader in(v, "");
  in.Text("id", true, &m->id);
  in.Text("name", false, &m->name);
  in.Text("tier", true, &m->tier);
  in.Integer("n_tokens", true, kMaxTokens, &m->n_tokens);
  in.Integer("n_image_tokens", true, kMaxTokens, &m->n_image_tokens);
  in.Text("parent", false, &m->parent);
  in.Text("model_name", false, &m->model_name);
  in.Text("created", false, &m->created);
  in.Text("producer", false, &m->producer);
  in.Text("prompt_kind", false, &m->prompt_kind);
  in.Text("prompt_suffix", false, &m->prompt_suffix);
  in.Integer("prefill_us", false, kMaxInteger, &m->prefill_us);
  in.Integers("tail_loss", kMaxTailLoss, &m->tail_loss);
  if (const json* part = in.Member("identity", true)) in.Merge(ReadIdentity(*part, &m->identity));
  if (const json* part = in.Member("schedule", true)) in.Merge(ReadSchedule(*part, &m->schedule));
  if (const json* part = in.Member("probe", false)) in.Merge(ReadProbe(*part, &m->probe));
  return in.status();
}

Status AsCorrupt(const Status& status) {
  return status.ok() ? status : Status(Code::kCorrupt, status.message());
}

}  // namespace

Status CheckManifest(const Manifest& m) {
  KVG_RETURN(CheckHash("id", m.id, false));
  KVG_RETURN(CheckHash("parent", m.parent, true));
  KVG_RETURN(CheckWord("tier", m.tier));
  KVG_RETURN(CheckWord("schedule.kind", m.schedule.kind));
  KVG_RETURN(CheckWord("schedule.attention", m.schedule.attention));
  KVG_RETURN(CheckWord("prompt_kind", m.prompt_kind));
  KVG_RETURN(CheckTime(m.created));
  KVG_RETURN(CheckProbe(m.probe));
  KVG_RETURN(CheckIdentity(m.identity).Annotate("manifest"));
  if (m.identity.compat.size() > kMaxIdentityFields ||
      m.identity.build.size() > kMaxIdentityFields) {
    return Bad(fmt::format("identity: more than {} members", kMaxIdentityFields));
  }
  if (m.n_tokens > kMaxTokens) {
    return Bad(fmt::format("n_tokens: {}, the limit is {}", m.n_tokens, kMaxTokens));
  }
  if (m.n_image_tokens > m.n_tokens) {
    return Bad(fmt::format("n_image_tokens: {}, but n_tokens is {}", m.n_image_tokens, m.n_tokens));
  }
  if (m.prefill_us > kMaxInteger) return Bad("prefill_us: above 2^53 - 1");
  if (m.tail_loss.size() > std::min<uint64_t>(kMaxTailLoss, m.n_tokens)) {
    return Bad(fmt::format("tail_loss: {} entries for {} tokens, the limit is {}",
                           m.tail_loss.size(), m.n_tokens, kMaxTailLoss));
  }
  for (const uint64_t loss : m.tail_loss) {
    if (loss > kMaxInteger) return Bad("tail_loss: above 2^53 - 1");
  }
  return Status::Ok();
}

Result<std::string> ManifestToJson(const Manifest& m) {
  KVG_RETURN(CheckManifest(m));
  try {
    json object = {
        {"id", m.id},
        {"name", m.name},
        {"tier", m.tier},
        {"identity",
         {{"compat", FieldsToJson(m.identity.compat)}, {"build", FieldsToJson(m.identity.build)}}},
        {"n_tokens", m.n_tokens},
        {"n_image_tokens", m.n_image_tokens},
        {"schedule",
         {{"kind", m.schedule.kind},
          {"row_quantum", m.schedule.row_quantum},
          {"attention", m.schedule.attention},
          {"n_ubatch", m.schedule.n_ubatch},
          {"verified", m.schedule.verified}}},
        {"probe",
         {{"suffix", m.probe.suffix},
          {"padded_sha256", m.probe.padded_sha256},
          {"single_token", m.probe.single_token},
          {"single_sha256", m.probe.single_sha256},
          {"single_threads", m.probe.single_threads}}},
        {"parent", m.parent},
        {"model_name", m.model_name},
        {"created", m.created},
        {"producer", m.producer},
        {"prompt_kind", m.prompt_kind},
        {"prompt_suffix", m.prompt_suffix},
        {"prefill_us", m.prefill_us},
    };
    // Left out when empty: the bytes of artifacts without it are as they always were.
    if (!m.tail_loss.empty()) object["tail_loss"] = m.tail_loss;
    std::string text = object.dump();
    if (text.size() > kMaxManifestBytes) {
      return Bad(fmt::format("{} bytes, the limit is {}", text.size(), kMaxManifestBytes));
    }
    return text;
  } catch (const json::exception& e) {  // invalid UTF-8
    return Bad(e.what());
  }
}

Result<Manifest> ManifestFromJson(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return AsCorrupt(Bad(fmt::format("{} bytes, the limit is {}", text.size(), kMaxManifestBytes)));
  }
  KVG_RETURN(CheckJson(text, kMaxManifestDepth).Annotate("manifest"));
  Manifest m;
  try {
    KVG_RETURN(AsCorrupt(ReadManifest(json::parse(text), &m)));
  } catch (const json::exception& e) {
    return AsCorrupt(Bad(e.what()));
  }
  KVG_RETURN(AsCorrupt(CheckManifest(m)));
  return m;
}

}  // namespace kvgraft::artifact
