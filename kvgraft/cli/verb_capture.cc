// kvgraft capture
#include "kvgraft/app/capture.h"
#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

struct CaptureFlags {
  std::string file, messages;
  std::optional<std::string> text;
  app::CaptureOptions options;
  bool no_probe = false, no_resume = false;
};

Status FillSource(CaptureFlags& flags) {
  const int given =
      (flags.file.empty() ? 0 : 1) + (flags.messages.empty() ? 0 : 1) + (flags.text ? 1 : 0);
  if (given != 1) {
    return Status(Code::kInvalidArgument, "capture: give one of FILE, '-', --text and --messages");
  }
  app::Source& source = flags.options.source;
  if (!flags.messages.empty()) {
    if (!source.system.empty() || source.raw) {
      return Status(Code::kInvalidArgument,
                    "capture: --system and --raw go with a document, not "
                    "with --messages");
    }
    KVG_ASSIGN(std::string json, app::ReadDocument(flags.messages));
    KVG_ASSIGN(source.messages, app::ParseMessages(json));
    return Status::Ok();
  }
  if (source.raw && !source.system.empty()) {
    return Status(Code::kInvalidArgument, "capture: --system has no effect with --raw");
  }
  if (flags.text) {
    source.text = *flags.text;
    if (app::FindInvalidUtf8(source.text) != std::string_view::npos) {
      return Status(Code::kInvalidArgument, "capture: --text is not UTF-8");
    }
  } else {
    KVG_ASSIGN(source.text, app::ReadDocument(flags.file));
  }
  if (source.text.empty()) return Status(Code::kInvalidArgument, "capture: the document is empty");
  return Status::Ok();
}

Json ReportJson(const app::CaptureReport& report) {
  Json json;
  json["id"] = report.entry.id;
  json["name"] = report.name.empty() ? Json(nullptr) : Json(report.name);
  json["tokens"] = report.tokens;
  json["bytes"] = report.entry.file_bytes;
  json["prefill_ms"] = report.prefill_ms;
  json["store_ms"] = report.store_ms;
  json["tokens_reused"] = report.tokens_reused;
  json["tokens_computed"] = report.tokens_computed;
  json["already_stored"] = report.already_stored;
  json["resumed_from"] = report.resumed_from.empty() ? Json(nullptr) : Json(report.resumed_from);
  json["exact"] = report.verified_schedule;
  json["graft_ms"] = report.graft_ms;
  json["image_ms"] = report.image_ms;
  json["probe_ms"] = report.probe_ms;
  json["total_ms"] = report.total_ms;
  return json;
}

void PrintReport(Console& console, const app::CaptureReport& report) {
  const std::string label =
      ShortId(report.entry.id) + (report.name.empty() ? "" : " " + report.name);
  std::string line = console.Bold(label) + ": " + FormatCount(report.tokens) + " tokens, " +
                     FormatBytes(report.entry.file_bytes);
  if (report.already_stored) {
    line += ", was stored already";
  } else {
    if (report.tokens_reused > 0) {
      line += ", " + FormatCount(report.tokens_reused) + " of them taken from " +
              ShortId(report.resumed_from);
    }
    line += ", prefill " + FormatMs(report.prefill_ms) + ", stored in " + FormatMs(report.store_ms);
  }
  console.PrintLine(line);
}

Status RunVerb(Shell& shell, CaptureFlags& flags) {
  flags.options.probe = !flags.no_probe;
  flags.options.resume = !flags.no_resume;
  if (!flags.options.name.empty()) KVG_RETURN(store::CheckName(flags.options.name));
  KVG_RETURN(FillSource(flags));
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  auto report = app::RunCapture(*runtime, flags.options);
  if (!report.ok()) return report.status().Annotate("capture");
  if (!report->verified_schedule) {
    shell.console.Note(
        "no configuration is exact here (kvgraft doctor): stored, but not as proven "
        "bit-exact");
  }
  if (shell.console.json) {
    shell.console.PrintJson(ReportJson(*report));
  } else {
    PrintReport(shell.console, *report);
  }
  return Status::Ok();
}

}  // namespace

void AddCaptureVerbs(Shell& shell) {
  CLI::App* verb = AddVerb(shell, "capture", "compute a text's state and store it");
  auto flags = std::make_shared<CaptureFlags>();
  verb->add_option("FILE", flags->file, "document; - is standard input");
  verb->add_option("--text", flags->text, "the document itself")->type_name("TEXT");
  verb->add_option("--messages", flags->messages, "chat: a JSON file of role and content")
      ->type_name("FILE");
  verb->add_option("--system", flags->options.source.system, "system text before the document")
      ->type_name("TEXT");
  verb->add_flag("--raw", flags->options.source.raw, "no chat template");
  verb->add_option("--name", flags->options.name, "name for the artifact")->type_name("NAME");
  verb->add_flag("--pin", flags->options.pin, "never evict it");
  verb->add_flag("--no-probe", flags->no_probe, "record no probe");
  verb->add_flag("--no-resume", flags->no_resume, "compute all of it, whatever is stored");
  AddModelFlags(verb, shell);
  AddStoreFlags(verb, shell);
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });
}

}  // namespace kvgraft::cli
