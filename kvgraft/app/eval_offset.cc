#include "kvgraft/app/eval_offset.h"

#include <nlohmann/json.hpp>

#include "kvgraft/app/capture.h"
#include "kvgraft/app/figure_internal.h"
#include "kvgraft/app/prove.h"
#include "kvgraft/app/version.h"
#include "kvgraft/core/file.h"

namespace kvgraft::app {
namespace {

using Json = nlohmann::ordered_json;

Json ArmJson(const eval::OffsetSummary& s, const eval::OffsetSummary::Arm& arm) {
  return {{"items", s.tokens},
          {"kl", Figure(arm.kl)},
          {"kl_standard_error", Figure(arm.kl_error)},
          {"kl_max", Figure(arm.kl_max)},
          {"top1_agreement", arm.top1}};
}

Json DifferenceJson(const eval::OffsetSummary::Difference& d) {
  return {{"mean", Figure(d.mean)}, {"standard_error", Figure(d.error)}};
}

Json ItemArmJson(const eval::OffsetArm& arm) {
  return {{"kl", Figure(arm.kl)}, {"kl_max", Figure(arm.kl_max)}, {"top1", arm.top1}};
}

Json ItemJson(const eval::OffsetItem& item) {
  Json json = {{"text", item.text},
               {"offset", item.offset},
               {"items", item.n_scored},
               {"fresh_at_0", ItemArmJson(item.fresh)},
               {"moved", ItemArmJson(item.moved)}};
  if (item.has_shift) json["engine_shift"] = ItemArmJson(item.shift);
  json["move_ms"] = item.move_ms;
  json["load_ms"] = item.load_ms;
  return json;
}

bool Holds(const std::vector<eval::OffsetSummary>& offsets) {
  for (const eval::OffsetSummary& s : offsets) {
    if (s.moved.kl <= kSameKl) continue;
    if (!(s.moved.kl <= kOwnDrift * s.fresh.kl)) return false;
    const eval::OffsetSummary::Difference& d = s.moved_minus_shift;
    if (s.has_shift && !(d.mean <= 2 * d.error)) return false;
  }
  return true;
}

Json ObjectJson(const EvalOffsetOutcome& outcome) {
  const EngineInfo engine = GetEngineInfo();
  Json json = {{"eval", "offset"},
               {"model", outcome.model},
               {"holds", outcome.holds},
               {"texts", outcome.options.n_texts},
               {"tokens_moved", outcome.options.n_context},
               {"tokens_scored", outcome.options.n_scored},
               {"seed", outcome.options.seed}};
  json["offsets"] = Json::array();
  for (const eval::OffsetSummary& s : outcome.offsets) {
    Json arms = {{"fresh_at_0", ArmJson(s, s.fresh)}, {"moved", ArmJson(s, s.moved)}};
    if (s.has_shift) arms["engine_shift"] = ArmJson(s, s.shift);
    Json paired = {{"moved_minus_fresh_at_0", DifferenceJson(s.moved_minus_fresh)}};
    if (s.has_shift) paired["moved_minus_engine_shift"] = DifferenceJson(s.moved_minus_shift);
    json["offsets"].push_back(
        {{"offset", s.offset}, {"arms", std::move(arms)}, {"paired", std::move(paired)}});
  }
  json["total_ms"] = outcome.total_ms;
  json["producer"] = kProducer;
  json["engine"] = {
      {"version", engine.version}, {"ggml", engine.ggml}, {"cpu_features", engine.cpu_features}};
  return json;
}

}  // namespace

Result<EvalOffsetOutcome> RunEvalOffset(Runtime& runtime, const EvalOffsetOptions& options) {
  const double start = NowMs();
  EvalOffsetOutcome outcome;
  outcome.model = options.model;
  eval::OffsetOptions& o = outcome.options;
  if (options.quick) o.offsets = {8, 1024};
  if (!options.offsets.empty()) o.offsets = options.offsets;
  o.n_texts = options.n_texts > 0 ? options.n_texts : options.quick ? 2 : 8;
  o.seed = options.seed;
  if (!options.texts_dir.empty()) {
    KVG_ASSIGN(o.texts, ReadTexts(options.texts_dir));
  }
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  KVG_ASSIGN(o.context, runtime.ContextFor(o.n_context + o.n_scored));
  const Hooks& hooks = runtime.hooks();
  const auto progress = hooks.Stage("offset");
  KVG_ASSIGN(outcome.items, eval::MeasureOffsets(
                                *model, o, [&](const eval::OffsetItem&, size_t done, size_t total) {
                                  return !progress || progress(done, total);
                                }));
  outcome.offsets = eval::Summarise(outcome.items);
  outcome.holds = Holds(outcome.offsets);
  outcome.total_ms = NowMs() - start;
  if (!options.items.empty()) {
    std::string lines;
    for (const eval::OffsetItem& item : outcome.items) lines += ItemJson(item).dump() + "\n";
    KVG_RETURN(WriteFileAtomic(options.items, lines));
  }
  if (!options.out.empty()) {
    Json json = ObjectJson(outcome);
    json["per_item"] = Json::array();
    for (const eval::OffsetItem& item : outcome.items) json["per_item"].push_back(ItemJson(item));
    KVG_RETURN(WriteFileAtomic(options.out, json.dump(1) + "\n"));
  }
  return outcome;
}

std::string EvalOffsetJson(const EvalOffsetOutcome& outcome) { return ObjectJson(outcome).dump(); }

}  // namespace kvgraft::app
