// kvgraft show
#include "kvgraft/app/ask.h"
#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

struct ShowFlags {
  std::string ref;
  bool text = false, tokens = false;
};

Json FieldsJson(const std::vector<IdentityField>& fields) {
  Json json = Json::object();
  for (const auto& field : fields) json[field.name] = field.value;
  return json;
}

Json ShowJson(const app::OpenedArtifact& opened, const ShowFlags& flags) {
  const artifact::Manifest& m = opened.reader.manifest();
  Json json = EntryJson(opened.entry);
  json["identity"] = FieldsJson(m.identity.compat);
  json["build"] = FieldsJson(m.identity.build);
  json["schedule"] = {{"kind", m.schedule.kind},
                      {"row_quantum", m.schedule.row_quantum},
                      {"attention", m.schedule.attention},
                      {"n_ubatch", m.schedule.n_ubatch},
                      {"verified", m.schedule.verified}};
  json["probe"] = {{"suffix", m.probe.suffix},
                   {"padded_sha256", m.probe.padded_sha256},
                   {"single_token", m.probe.single_token},
                   {"single_sha256", m.probe.single_sha256},
                   {"single_threads", m.probe.single_threads}};
  json["producer"] = m.producer;
  json["suggested_name"] = m.name;
  json["prompt_kind"] = m.prompt_kind;
  json["prompt_suffix"] = m.prompt_suffix;
  json["prefill_us"] = m.prefill_us;
  json["tail_loss"] = m.tail_loss;
  json["pages"] = opened.reader.n_pages();
  json["page_bytes"] = opened.reader.page_bytes();
  json["text_bytes"] = opened.reader.text().size();
  if (flags.text) json["text"] = opened.reader.text();
  if (flags.tokens) json["token_ids"] = opened.reader.tokens();
  return json;
}

std::string Names(const store::Entry& entry) {
  std::string out;
  for (const std::string& name : entry.names) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "-" : out;
}

void PrintManifest(Console& console, const app::OpenedArtifact& opened) {
  const artifact::Manifest& m = opened.reader.manifest();
  const store::Entry& e = opened.entry;
  std::vector<std::vector<std::string>> rows = {
      {"id", m.id},
      {"names", Names(e) + (e.pinned ? " (pinned)" : "")},
      {"tier", m.tier},
      {"tokens", FormatCount(m.n_tokens) + " (" + FormatCount(m.n_image_tokens) + " in the image)"},
      {"size", FormatBytes(e.file_bytes) + " in " + std::to_string(opened.reader.n_pages()) +
                   " pages of " + FormatBytes(opened.reader.page_bytes())},
      {"model", m.model_name},
      {"created", m.created + " by " + m.producer},
      {"prefill", FormatMs(static_cast<double>(m.prefill_us) / 1000)},
      {"parent", m.parent.empty() ? "-" : m.parent},
      {"prompt", m.prompt_kind},
      {"schedule", m.schedule.kind + ", rows by " + std::to_string(m.schedule.row_quantum) + ", " +
                       m.schedule.attention + " attention, ubatch " +
                       std::to_string(m.schedule.n_ubatch) +
                       (m.schedule.verified ? ", self-test held" : ", not verified")},
      {"probe", m.probe.padded_sha256.empty() ? "none"
                                              : ShortId(m.probe.padded_sha256) + ", single row " +
                                                    ShortId(m.probe.single_sha256)},
      {"text", Excerpt(opened.reader.text(), 60)},
  };
  console.Print(FormatTable(rows, "ll"));
  console.PrintLine("\n" + console.Bold("identity") + " (any difference refuses)");
  std::vector<std::vector<std::string>> fields;
  for (const auto& field : m.identity.compat) fields.push_back({"  " + field.name, field.value});
  console.Print(FormatTable(fields, "ll"));
  console.PrintLine("\n" + console.Bold("build") + " (a difference is flagged)");
  fields.clear();
  for (const auto& field : m.identity.build) fields.push_back({"  " + field.name, field.value});
  console.Print(FormatTable(fields, "ll"));
}

Status RunVerb(Shell& shell, const ShowFlags& flags) {
  KVG_ASSIGN(std::unique_ptr<app::Runtime> runtime, shell.MakeRuntime());
  auto opened = app::OpenRef(*runtime, flags.ref);
  if (!opened.ok()) return opened.status().Annotate("show");
  if (shell.console.json) {
    shell.console.PrintJson(ShowJson(*opened, flags));
  } else if (flags.text) {
    shell.console.Print(opened->reader.text());
  } else if (flags.tokens) {
    for (int32_t token : opened->reader.tokens()) shell.console.PrintLine(std::to_string(token));
  } else {
    PrintManifest(shell.console, *opened);
  }
  return Status::Ok();
}

}  // namespace

void AddShowVerbs(Shell& shell) {
  CLI::App* verb = AddVerb(shell, "show", "an artifact's manifest, text or tokens");
  auto flags = std::make_shared<ShowFlags>();
  verb->add_option("REF", flags->ref, "name, id, or 6 digits of it or more")->required();
  verb->add_flag("--text", flags->text, "print the source text");
  verb->add_flag("--tokens", flags->tokens, "print the token ids, one a line");
  AddStoreFlags(verb, shell);
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });
}

}  // namespace kvgraft::cli
