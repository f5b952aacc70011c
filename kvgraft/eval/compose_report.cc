// Items of `eval compose` as JSON lines, and their summaries.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kvgraft/eval/compose.h"

namespace kvgraft::eval {
namespace {

using Json = nlohmann::ordered_json;
using Mean = ComposeSummary::Mean;

double Figure(const Json& v) {
  return v.is_null() ? std::numeric_limits<double>::infinity() : v.get<double>();
}

Mean MeanOf(const std::vector<double>& values) {
  Mean out;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) out.mean += v / n;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  if (n > 1) out.error = std::sqrt(squares / (n - 1) / n);
  return out;
}

const ComposeArm* FindArm(const ComposeItem& item, const std::string& name) {
  const auto at = std::find_if(item.arms.begin(), item.arms.end(),
                               [&](const ComposeArm& arm) { return arm.name == name; });
  return at == item.arms.end() ? nullptr : &*at;
}

ComposeSummary SummariseArm(const std::vector<const ComposeItem*>& items, const std::string& name,
                            const std::string& kind) {
  ComposeSummary s;
  s.arm = name;
  s.kind = kind;
  std::vector<double> kl, loss, ms, accepted, rejected;
  uint32_t top1 = 0;
  for (const ComposeItem* item : items) {
    const ComposeArm* arm = FindArm(*item, name);
    const ComposeArm* full = FindArm(*item, "full");
    if (arm == nullptr || full == nullptr) continue;
    ++s.items;
    s.rows += arm->rows;
    top1 += arm->top1;
    kl.push_back(arm->kl);
    loss.push_back(arm->gold_loss - full->gold_loss);
    ms.push_back(arm->ms);
    s.correct += arm->correct ? 1 : 0;
    s.only_full += full->correct && !arm->correct ? 1 : 0;
    s.only_this += arm->correct && !full->correct ? 1 : 0;
    s.gated += arm->gated ? 1 : 0;
    const bool fell_back = arm->gated && !arm->passed;
    s.fell_back += fell_back ? 1 : 0;
    if (arm->gated) (fell_back ? rejected : accepted).push_back(arm->kl);
    s.correct_gated += (fell_back ? full : arm)->correct ? 1 : 0;
  }
  s.kl = MeanOf(kl);
  s.gold_loss_minus_full = MeanOf(loss);
  s.ms = MeanOf(ms);
  s.kl_accepted = MeanOf(accepted);
  s.kl_rejected = MeanOf(rejected);
  s.top1 = s.rows > 0 ? static_cast<double>(top1) / s.rows : 0;
  s.mcnemar_p = McNemarP(s.only_full, s.only_this);
  return s;
}

}  // namespace

std::string ComposeItemToJson(const ComposeItem& item) {
  Json json = {{"id", item.id},
               {"kind", item.kind},
               {"chunks", item.n_chunks},
               {"tokens", item.n_tokens},
               {"arms", Json::object()}};
  for (const ComposeArm& a : item.arms) {
    Json arm = {{"kl", a.kl},     {"gold_loss", a.gold_loss}, {"items", a.rows},
                {"top1", a.top1}, {"correct", a.correct},     {"answer", a.answer},
                {"ms", a.ms}};
    if (a.gated) arm["gate"] = {{"delta", a.delta}, {"passed", a.passed}};
    json["arms"][a.name] = std::move(arm);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ComposeItem> ComposeItemFromJson(std::string_view text) {
  try {
    const Json j = Json::parse(text);
    ComposeItem item;
    item.id = j.at("id").get<std::string>();
    item.kind = j.at("kind").get<std::string>();
    item.n_chunks = j.at("chunks").get<uint32_t>();
    item.n_tokens = j.at("tokens").get<uint32_t>();
    for (const auto& [name, a] : j.at("arms").items()) {
      ComposeArm& arm = item.arms.emplace_back();
      arm.name = name;
      arm.kl = Figure(a.at("kl"));
      arm.gold_loss = Figure(a.at("gold_loss"));
      arm.rows = a.at("items").get<uint32_t>();
      arm.top1 = a.at("top1").get<uint32_t>();
      arm.correct = a.at("correct").get<bool>();
      arm.answer = a.at("answer").get<std::string>();
      arm.ms = a.at("ms").get<double>();
      arm.gated = a.contains("gate");
      if (!arm.gated) continue;
      arm.delta = Figure(a.at("gate").at("delta"));
      arm.passed = a.at("gate").at("passed").get<bool>();
    }
    return item;
  } catch (const Json::exception& e) {
    return Status(Code::kCorrupt, std::string("compose: not the JSON of an item: ") + e.what());
  }
}

std::vector<ComposeSummary> SummariseCompose(const std::vector<ComposeItem>& items) {
  std::vector<ComposeSummary> out;
  if (items.empty()) return out;
  for (const ComposeArm& arm : items[0].arms) {
    for (const char* kind : {"all", "one", "two"}) {
      std::vector<const ComposeItem*> of_kind;
      for (const ComposeItem& item : items) {
        if (kind == std::string_view("all") || item.kind == kind) of_kind.push_back(&item);
      }
      if (!of_kind.empty()) out.push_back(SummariseArm(of_kind, arm.name, kind));
    }
  }
  return out;
}

double McNemarP(uint32_t b, uint32_t c) {
  const uint32_t n = b + c;
  if (n == 0) return 1;
  // 2 P(X <= min(b, c)) for X binomial with p = 1/2, in logarithms.
  double tail = 0;
  for (uint32_t k = 0; k <= std::min(b, c); ++k) {
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) -
                     n * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

}  // namespace kvgraft::eval
