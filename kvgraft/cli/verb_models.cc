// kvgraft models list | pull NAME | path NAME
#include "kvgraft/app/models.h"
#include "kvgraft/cli/shell.h"
#include "kvgraft/core/bytes.h"

namespace kvgraft::cli {
namespace {

struct ModelsFlags {
  std::string action = "list", name;
  bool accept_licence = false;
};

Json ModelJson(const app::ModelEntry& model) {
  return {{"name", model.name},        {"path", model.path},   {"present", model.present},
          {"bytes", model.file_bytes}, {"title", model.title}, {"licence", model.licence},
          {"known", model.known}};
}

Status List(Shell& shell, const app::Config& config) {
  KVG_ASSIGN(std::vector<app::ModelEntry> models, app::ListModels(config));
  if (shell.console.json) {
    Json json = {{"models_dir", config.models_dir}, {"models", Json::array()}};
    for (const auto& model : models) json["models"].push_back(ModelJson(model));
    shell.console.PrintJson(json);
    return Status::Ok();
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& model : models) {
    rows.push_back({model.name, model.present ? FormatBytes(model.file_bytes) : "not here",
                    model.title, model.licence});
  }
  shell.console.Print(FormatTable(rows, "lrll"));
  return Status::Ok();
}

Status RunVerb(Shell& shell, const ModelsFlags& flags) {
  KVG_ASSIGN(app::Config config, app::MakeConfig(shell.flags, shell.environment));
  if (flags.action == "list") {
    if (!flags.name.empty() || flags.accept_licence) {
      return Status(Code::kInvalidArgument, "models: list takes no name and no --accept-licence");
    }
    return List(shell, config);
  }
  if (flags.name.empty()) {
    return Status(Code::kInvalidArgument, "models: " + flags.action + " needs a NAME");
  }
  std::string path;
  if (flags.action == "pull") {
    KVG_ASSIGN(path, app::PullModel(config, flags.name, flags.accept_licence));
  } else {
    if (flags.accept_licence) {
      return Status(Code::kInvalidArgument, "models: --accept-licence goes with pull");
    }
    KVG_ASSIGN(path, app::ResolveModel(config, flags.name));
  }
  if (shell.console.json) {
    shell.console.PrintJson({{"name", flags.name}, {"path", path}});
  } else {
    shell.console.PrintLine(path);
  }
  return Status::Ok();
}

}  // namespace

void AddModelsVerbs(Shell& shell) {
  CLI::App* verb = AddVerb(shell, "models", "list the models, fetch one, print its path");
  auto flags = std::make_shared<ModelsFlags>();
  verb->add_option("ACTION", flags->action, "list, pull or path")
      ->check(CLI::IsMember({"list", "pull", "path"}));
  verb->add_option("NAME", flags->name, "short name");
  verb->add_flag("--accept-licence", flags->accept_licence, "pull: the model's terms are accepted");
  verb->add_option("--models-dir", shell.flags.models_dir, "folder of the models (KVGRAFT_MODELS)")
      ->type_name("DIR");
  verb->callback(
      [&shell, flags] { shell.action = [&shell, flags] { return RunVerb(shell, *flags); }; });
}

}  // namespace kvgraft::cli
