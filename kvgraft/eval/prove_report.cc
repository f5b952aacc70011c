// Figures of a proof, and its samples as JSON lines.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kvgraft/eval/prove.h"

namespace kvgraft::eval {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Figure(const Json& j, const char* name) {
  const Json& v = j.at(name);
  return v.is_null() ? kInfinity : v.get<double>();
}

}  // namespace

double MaxAbsDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return kInfinity;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] == b[i] ? 0 : std::fabs(double{a[i]} - double{b[i]});
    if (std::isnan(d)) return kInfinity;
    largest = std::max(largest, d);
  }
  return largest;
}

std::string SampleToJson(const ProveSample& s) {
  const Json json = {{"index", s.index},
                     {"arm", s.arm},
                     {"n_tokens", s.n_tokens},
                     {"n_parts", s.n_parts},
                     {"n_threads", s.n_threads},
                     {"n_single", s.n_single},
                     {"n_restored", s.n_restored},
                     {"tier", s.tier},
                     {"identical", s.identical()},
                     {"state_identical", s.state_identical},
                     {"logits_identical", s.logits_identical},
                     {"generation_identical", s.generation_identical},
                     {"final_state_identical", s.final_state_identical},
                     {"kl", s.kl},
                     {"max_abs_logit_diff", s.max_abs_logit_diff},
                     {"ordinary_max_abs_logit_diff", s.ordinary_max_abs_logit_diff},
                     {"ordinary_kl", s.ordinary_kl},
                     {"ordinary_state_identical", s.ordinary_state_identical}};
  return json.dump();
}

Result<ProveSample> SampleFromJson(std::string_view text) {
  try {
    const Json j = Json::parse(text);
    ProveSample s;
    s.index = j.at("index").get<uint32_t>();
    s.arm = j.at("arm").get<std::string>();
    s.n_tokens = j.at("n_tokens").get<uint32_t>();
    s.n_parts = j.at("n_parts").get<uint32_t>();
    s.n_threads = j.at("n_threads").get<uint32_t>();
    s.n_single = j.at("n_single").get<uint32_t>();
    s.n_restored = j.at("n_restored").get<uint32_t>();
    s.tier = j.at("tier").get<std::string>();
    s.state_identical = j.at("state_identical").get<bool>();
    s.logits_identical = j.at("logits_identical").get<bool>();
    s.generation_identical = j.at("generation_identical").get<bool>();
    s.final_state_identical = j.at("final_state_identical").get<bool>();
    s.kl = Figure(j, "kl");
    s.max_abs_logit_diff = Figure(j, "max_abs_logit_diff");
    s.ordinary_max_abs_logit_diff = Figure(j, "ordinary_max_abs_logit_diff");
    s.ordinary_kl = Figure(j, "ordinary_kl");
    s.ordinary_state_identical = j.at("ordinary_state_identical").get<bool>();
    return s;
  } catch (const Json::exception& e) {
    return Status(Code::kCorrupt, std::string("proof: not the JSON of a sample: ") + e.what());
  }
}

}  // namespace kvgraft::eval
