#include "kvgraft/app/eval_compose.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kvgraft/app/capture.h"
#include "kvgraft/app/document.h"
#include "kvgraft/app/figure_internal.h"
#include "kvgraft/app/version.h"
#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/core/random.h"
#include "kvgraft/core/utc.h"

namespace kvgraft::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxItemsBytes = 256 << 20;
constexpr uint32_t kBuiltInGroups = 4, kQuickSamples = 12;

Json MeanJson(const eval::ComposeSummary::Mean& m) {
  return {{"mean", Figure(m.mean)}, {"standard_error", Figure(m.error)}};
}

Json SummaryJson(const eval::ComposeSummary& s) {
  Json json = {{"arm", s.arm},
               {"kind", s.kind},
               {"items", s.items},
               {"answer_tokens", s.rows},
               {"kl", MeanJson(s.kl)},
               {"top1_agreement", s.top1},
               {"gold_loss_minus_full", MeanJson(s.gold_loss_minus_full)},
               {"correct", s.correct},
               {"accuracy", s.items > 0 ? static_cast<double>(s.correct) / s.items : 0},
               {"only_full_correct", s.only_full},
               {"only_this_correct", s.only_this},
               {"mcnemar_p", s.mcnemar_p},
               {"ms", MeanJson(s.ms)}};
  if (s.gated == 0) return json;
  json["gate"] = {{"asked", s.gated},
                  {"fell_back", s.fell_back},
                  {"kl_accepted", s.fell_back < s.gated ? MeanJson(s.kl_accepted) : Json(nullptr)},
                  {"kl_rejected", s.fell_back > 0 ? MeanJson(s.kl_rejected) : Json(nullptr)},
                  {"correct_with_fallback", s.correct_gated}};
  return json;
}

Json GateJson(const session::DriftRecord& r) {
  return {{"link_tokens", r.link_tokens},
          {"usable", r.usable},
          {"reason", r.reason},
          {"threshold", Figure(r.threshold)},
          {"good", r.n_good},
          {"good_passed", r.good_passed},
          {"bad", r.n_bad},
          {"bad_caught", r.bad_caught},
          {"harmful", r.n_harmful},
          {"harmful_caught", r.harmful_caught},
          {"good_kl", Figure(r.good_kl)},
          {"harm_kl", Figure(r.harm_kl)}};
}

Json ObjectJson(const EvalComposeOutcome& outcome) {
  const EngineInfo engine = GetEngineInfo();
  Json json = {
      {"eval", "compose"},
      {"model", outcome.model},
      {"items", outcome.items.size()},
      {"questions", outcome.questions},
      {"data_sha256", outcome.data_sha256.empty() ? Json(nullptr) : Json(outcome.data_sha256)},
      {"seed", outcome.seed},
      {"default_link", session::kDefaultLinkTokens}};
  json["arms"] = Json::array();
  for (const auto& s : outcome.summaries) json["arms"].push_back(SummaryJson(s));
  json["gates"] = Json::array();
  for (const auto& r : outcome.gates) json["gates"].push_back(GateJson(r));
  json["total_ms"] = outcome.total_ms;
  json["created"] = UtcNow();
  json["producer"] = kProducer;
  json["engine"] = {
      {"version", engine.version}, {"ggml", engine.ggml}, {"cpu_features", engine.cpu_features}};
  return json;
}

// The items file: a line of settings, then a line for each question.
class ItemsFile {
 public:
  ItemsFile(std::string path, std::string settings)
      : path_(std::move(path)), settings_(std::move(settings)) {}
  ~ItemsFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  ItemsFile(const ItemsFile&) = delete;
  ItemsFile& operator=(const ItemsFile&) = delete;

  Status Open(bool resume, std::vector<eval::ComposeItem>* items) {
    if (path_.empty()) return Status::Ok();
    std::string text = settings_ + "\n";
    if (resume && FileExists(path_)) KVG_RETURN(Read(&text, items));
    KVG_RETURN(WriteFileAtomic(path_, text));
    file_ = std::fopen(path_.c_str(), "ab");
    return file_ != nullptr ? Status::Ok() : Status(Code::kIo, path_ + ": cannot be appended to");
  }

  Status Add(const eval::ComposeItem& item) {
    if (file_ == nullptr) return Status::Ok();
    const std::string line = eval::ComposeItemToJson(item) + "\n";
    const bool written = std::fwrite(line.data(), 1, line.size(), file_) == line.size();
    if (written && std::fflush(file_) == 0) return Status::Ok();
    return Status(Code::kIo, path_ + ": could not be written");
  }

 private:
  // Whole lines only: the last one may be cut off.
  Status Read(std::string* text, std::vector<eval::ComposeItem>* items) {
    KVG_ASSIGN(const std::string kept, ReadFile(path_, kMaxItemsBytes));
    size_t at = 0;
    for (size_t end = kept.find('\n'); end != std::string::npos; end = kept.find('\n', at)) {
      const std::string line = kept.substr(at, end - at);
      const bool first = at == 0;
      at = end + 1;
      if (first && line != settings_) {
        return Status(Code::kMismatch, path_ + ": its items are of other settings: " + line +
                                           ", this run has " + settings_ +
                                           "; use the same flags, or another --items");
      }
      if (first) continue;
      KVG_ASSIGN(eval::ComposeItem item, eval::ComposeItemFromJson(line));
      items->push_back(std::move(item));
      *text += line + "\n";
    }
    return Status::Ok();
  }

  const std::string path_, settings_;
  std::FILE* file_ = nullptr;
};

Result<std::vector<eval::ComposeQuestion>> LoadQuestions(const EvalComposeOptions& options,
                                                         std::string* sha256) {
  std::vector<eval::ComposeQuestion> questions;
  if (options.data.empty()) {
    questions = eval::BuiltInComposeQuestions(kBuiltInGroups, options.seed);
  } else {
    KVG_ASSIGN(const std::string text, ReadDocument(options.data));
    KVG_ASSIGN(questions, eval::ParseComposeQuestions(text));
    *sha256 = Sha256Hex(text);
  }
  Random random(options.seed);
  random.Shuffle(&questions);
  const uint32_t wanted = options.samples > 0 ? options.samples : options.quick ? kQuickSamples : 0;
  if (wanted > 0 && wanted < questions.size()) questions.resize(wanted);
  return questions;
}

Result<std::vector<session::DriftRecord>> GatesFor(Runtime& runtime,
                                                   std::span<const uint32_t> links) {
  KVG_ASSIGN(const StateIdentity identity, runtime.Identity());
  const std::vector<session::DriftRecord> kept = runtime.KeptDrift(identity);
  std::vector<session::DriftRecord> gates;
  for (const uint32_t link : links) {
    const auto at = std::find_if(kept.begin(), kept.end(),
                                 [link](const auto& r) { return r.link_tokens == link; });
    if (at != kept.end()) {
      gates.push_back(*at);
    } else if (link == session::kDefaultLinkTokens) {
      KVG_ASSIGN(session::DriftRecord found, runtime.Drift(identity, link));
      gates.push_back(std::move(found));
    }
  }
  return gates;
}

}  // namespace

Result<EvalComposeOutcome> RunEvalCompose(Runtime& runtime, const EvalComposeOptions& options) {
  const double start = NowMs();
  EvalComposeOutcome outcome;
  outcome.model = options.model;
  outcome.seed = options.seed;
  KVG_ASSIGN(const std::vector<eval::ComposeQuestion> questions,
             LoadQuestions(options, &outcome.data_sha256));
  outcome.questions = static_cast<uint32_t>(questions.size());
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  eval::ComposeOptions compose;
  if (options.quick) compose.link_tokens = {0, session::kDefaultLinkTokens};
  if (!options.link_tokens.empty()) compose.link_tokens = options.link_tokens;
  outcome.link_tokens = compose.link_tokens;
  compose.seed = options.seed;
  KVG_ASSIGN(compose.context, runtime.ContextFor(0));
  std::string gates;
  if (options.gate) {
    KVG_ASSIGN(outcome.gates, GatesFor(runtime, compose.link_tokens));
    compose.gates = outcome.gates;
    for (const session::DriftRecord& r : outcome.gates) gates += session::DriftRecordToJson(r);
  }
  const Json settings = {{"settings",
                          {{"model", options.model},
                           {"data", outcome.data_sha256},
                           {"seed", options.seed},
                           {"links", compose.link_tokens},
                           {"gates", gates.empty() ? "" : Sha256Hex(gates).substr(0, 16)}}}};
  ItemsFile file(options.items, settings.dump());
  KVG_RETURN(file.Open(options.resume, &outcome.items));

  eval::ComposeMeasurement measurement(*model, compose);
  KVG_RETURN(measurement.Start());
  const auto progress = runtime.hooks().Stage("compose");
  for (const eval::ComposeQuestion& question : questions) {
    const bool done = std::any_of(outcome.items.begin(), outcome.items.end(),
                                  [&](const auto& item) { return item.id == question.id; });
    if (done) continue;
    const auto go_on = [&](size_t, size_t) {
      return !progress || progress(outcome.items.size(), questions.size());
    };
    auto item = go_on(0, 0) ? measurement.Run(question, go_on)
                            : Result<eval::ComposeItem>(Status(Code::kCancelled, ""));
    if (item.status().code() == Code::kCancelled) {
      return Status(Code::kCancelled, "interrupted after " + std::to_string(outcome.items.size()) +
                                          " questions" +
                                          (options.items.empty() ? "" : "; --resume goes on"));
    }
    KVG_RETURN(item.status());
    KVG_RETURN(file.Add(*item));
    outcome.items.push_back(std::move(*item));
  }
  outcome.summaries = eval::SummariseCompose(outcome.items);
  outcome.total_ms = NowMs() - start;
  if (!options.out.empty()) {
    KVG_RETURN(WriteFileAtomic(options.out, ObjectJson(outcome).dump(1) + "\n"));
  }
  return outcome;
}

std::string EvalComposeJson(const EvalComposeOutcome& outcome) {
  return ObjectJson(outcome).dump();
}

}  // namespace kvgraft::app
