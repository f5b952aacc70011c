// kvgraft verify, diff
#include "kvgraft/app/verify.h"
#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct VerifyFlags {
  std::vector<std::string> refs;
  bool all = false;
  app::VerifyOptions options;
};

Json DiffsJson(const std::vector<IdentityDiff>& diffs, const char* a, const char* b) {
  Json json = Json::array();
  for (const auto& diff : diffs) {
    json.push_back({{"field", diff.field}, {a, diff.artifact}, {b, diff.here}});
  }
  return json;
}

Json VerifyJson(const app::VerifyReport& report) {
  Json json;
  json["id"] = report.entry.id;
  json["ok"] = report.ok();
  json["pages"] = report.pages;
  json["recomputed_identical"] =
      report.recomputed_identical ? Json(*report.recomputed_identical) : Json(nullptr);
  json["tokens"] = report.entry.n_tokens;
  json["bytes"] = report.entry.file_bytes;
  json["verify_ms"] = report.verify_ms;
  if (report.recomputed_identical) {
    json["first_difference"] =
        *report.recomputed_identical ? Json(nullptr) : Json(report.first_difference);
    json["probe_identical"] =
        report.probe_identical ? Json(*report.probe_identical) : Json(nullptr);
    json["tier"] = report.tier;
    json["tier_reason"] = report.tier_reason.empty() ? Json(nullptr) : Json(report.tier_reason);
    json["prefill_ms"] = report.prefill_ms;
    json["build_differences"] = DiffsJson(report.build_diffs, "artifact", "here");
  }
  return json;
}

std::string VerifyLine(const app::VerifyReport& report) {
  std::string line = ShortId(report.entry.id) + ": " + std::to_string(report.pages) +
                     " pages and the content identity are sound";
  if (report.recomputed_identical) {
    line += *report.recomputed_identical
                ? "; computed again in " + FormatMs(report.prefill_ms) + ", every byte is identical"
                : "; computed again, the state differs from byte " +
                      std::to_string(report.first_difference);
  }
  if (report.probe_identical) {
    line += *report.probe_identical ? "; the probe's logits are identical"
                                    : "; the probe's logits differ";
  }
  return line;
}

Status RunVerifyVerb(Shell& shell, VerifyFlags& flags) {
  if (flags.all == !flags.refs.empty()) {
    return Status(Code::kInvalidArgument, "verify: give a REF, or --all");
  }
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  KVG_ASSIGN(store::Store * store, runtime->OpenStore());
  if (flags.all) {
    KVG_ASSIGN(std::vector<store::Entry> entries, store->List());
    for (const auto& entry : entries) flags.refs.push_back(entry.id);
  }
  Json reports = Json::array();
  Status first;
  for (const std::string& ref : flags.refs) {
    auto report = app::RunVerify(*runtime, ref, flags.options);
    if (report.ok()) {
      reports.push_back(VerifyJson(*report));
      shell.console.PrintLine(VerifyLine(*report));
      if (report->ok() || !first.ok()) continue;
      first = Status(Code::kMismatch, "verify: " + ref +
                                          ": computed again, the state differs from byte " +
                                          std::to_string(report->first_difference));
      for (const auto& diff : report->build_diffs) {
        shell.console.Note(diff.field + " differs: artifact " + diff.artifact + ", here " +
                           diff.here);
      }
      continue;
    }
    if (report.status().code() != Code::kCorrupt) return report.status().Annotate("verify");
    // Go on to the others; the first failure is the one that is reported.
    if (first.ok()) first = report.status().Annotate("verify: " + ref);
    reports.push_back({{"id", ref}, {"ok", false}, {"reason", report.status().message()}});
  }
  if (shell.console.json && (first.ok() || first.code() == Code::kMismatch)) {
    shell.console.PrintJson(flags.all ? Json{{"ok", first.ok()}, {"artifacts", reports}}
                                      : reports.front());
  }
  return first;
}

std::string TokenCell(const std::optional<int32_t>& token, const std::string& text) {
  if (!token) return "(end)";
  return std::to_string(*token) + (text.empty() ? "" : " '" + Excerpt(text, 40) + "'");
}

Json DiffJson(const app::DiffReport& report) {
  Json json;
  const auto side = [](const app::DiffSide& s) {
    return Json{{"ref", s.label},
                {"id", s.id.empty() ? Json(nullptr) : Json(s.id)},
                {"tokens", s.n_tokens}};
  };
  json["a"] = side(report.a);
  json["b"] = side(report.b);
  json["compatible"] = report.compatible();
  json["identity"] = DiffsJson(report.compat, "a", "b");
  json["build"] = DiffsJson(report.build, "a", "b");
  if (report.against_model) return json;
  json["identical"] = report.identical();
  json["common_prefix_tokens"] = report.common_prefix_tokens;
  json["first_token"] = nullptr;
  if (const auto& first = report.first_token) {
    json["first_token"] = {{"index", first->index},
                           {"a", first->a ? Json(*first->a) : Json(nullptr)},
                           {"b", first->b ? Json(*first->b) : Json(nullptr)},
                           {"a_text", first->a_text},
                           {"b_text", first->b_text}};
  }
  json["image_identical"] = report.image_identical;
  json["first_image_byte"] =
      report.first_image_byte ? Json(*report.first_image_byte) : Json(nullptr);
  json["image_bytes_a"] = report.image_bytes_a;
  json["image_bytes_b"] = report.image_bytes_b;
  return json;
}

void PrintDiff(Console& console, const app::DiffReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const auto* diffs : {&report.compat, &report.build}) {
    for (const auto& diff : *diffs) rows.push_back({diff.field, diff.artifact, diff.here});
  }
  if (!rows.empty()) {
    rows.insert(rows.begin(), {"FIELD", report.a.label, report.b.label});
    console.Print(FormatTable(rows, "lll"));
  }
  console.PrintLine(report.compatible() ? "same model and configuration"
                                        : "a state of one cannot be loaded by the other");
  if (report.against_model) return;
  console.PrintLine("tokens: " + FormatCount(report.common_prefix_tokens) + " common, of " +
                    FormatCount(report.a.n_tokens) + " and " + FormatCount(report.b.n_tokens));
  if (const auto& first = report.first_token) {
    console.PrintLine("first different token, at " + FormatCount(first->index) + ": " +
                      TokenCell(first->a, first->a_text) + " and " +
                      TokenCell(first->b, first->b_text));
  }
  console.PrintLine(report.image_identical
                        ? "state: identical in every byte"
                        : "state: differs from byte " + FormatCount(*report.first_image_byte));
}

Status RunDiffVerb(Shell& shell, const std::vector<std::string>& refs) {
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  if (refs.size() == 1 && runtime->config().model.empty()) {
    return Status(Code::kInvalidArgument, "diff: give a second artifact, or a model with -m");
  }
  auto report = app::RunDiff(*runtime, refs[0], refs.size() > 1 ? refs[1] : "");
  if (!report.ok()) return report.status().Annotate("diff");
  if (shell.console.json) {
    shell.console.PrintJson(DiffJson(*report));
  } else {
    PrintDiff(shell.console, *report);
  }
  return Status::Ok();
}

}  // namespace

void AddVerifyVerbs(Shell& shell) {
  CLI::App* verify = AddVerb(shell, "verify", "check that an artifact is what it says");
  auto flags = std::make_shared<VerifyFlags>();
  verify->add_option("REF", flags->refs, "name, id, or 6 digits of it or more")->expected(0, 1);
  verify->add_flag("--all", flags->all, "every artifact of the store");
  verify->add_flag("--recompute", flags->options.recompute,
                   "prefill the tokens again and compare the bytes; needs -m");
  AddModelFlags(verify, shell);
  AddStoreFlags(verify, shell);
  verify->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerifyVerb(shell, *flags); }; });

  CLI::App* diff = AddVerb(shell, "diff", "compare two artifacts, or one with a model");
  auto refs = std::make_shared<std::vector<std::string>>();
  diff->add_option("REF", *refs, "one or two: name, id, or 6 digits of it or more")
      ->required()
      ->expected(1, 2);
  AddModelFlags(diff, shell);
  AddStoreFlags(diff, shell);
  diff->callback(
      [&shell, refs] { shell.action = [&shell, refs] { return RunDiffVerb(shell, *refs); }; });
}

}  // namespace kvgraft::cli
