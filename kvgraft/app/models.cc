#include "kvgraft/app/models.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "kvgraft/app/process.h"
#include "kvgraft/core/file.h"

namespace kvgraft::app {
namespace {

constexpr uint64_t kMaxLockBytes = 1 << 20;

std::string Text(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// What models.lock lists: name, title, licence.
std::vector<ModelEntry> LockEntries(const Config& config) {
  std::vector<ModelEntry> entries;
  const std::string path = FindShared(config, "models.lock");
  if (path.empty()) return entries;
  auto text = ReadFile(path, kMaxLockBytes);
  if (!text.ok()) return entries;
  const auto lock = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!lock.is_object() || !lock.contains("models") || !lock["models"].is_array()) return entries;
  for (const auto& model : lock["models"]) {
    if (!model.is_object()) continue;
    ModelEntry entry;
    entry.name = Text(model, "name");
    entry.title = Text(model, "title");
    entry.licence = Text(model, "licence");
    entry.known = true;
    if (!entry.name.empty()) entries.push_back(entry);
  }
  return entries;
}

std::vector<std::string> LockNames(const Config& config) {
  std::vector<std::string> names;
  for (const ModelEntry& entry : LockEntries(config)) names.push_back(entry.name);
  return names;
}

bool IsModelName(const std::string& name) {
  if (name.empty() || name.size() > 128 || name.front() == '.' || name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

uint64_t RegularFileBytes(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return 0;
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

bool IsToyModel(const std::string& model) {
  return model == "toy" || model.compare(0, 4, "toy:") == 0;
}

std::string FindShared(const Config& config, const std::string& name) {
  if (config.program_dir.empty()) return "";
  for (const char* folder : {"../share/kvgraft", "../..", "../../tools", "..", "../tools"}) {
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(
        JoinPath(JoinPath(config.program_dir, folder), name), error);
    if (!error && FileExists(path.string())) return path.string();
  }
  return "";
}

Result<std::string> ResolveModel(const Config& config, const std::string& model) {
  if (model.empty()) {
    return Status(Code::kInvalidArgument,
                  "no model given: use -m with a short name or a GGUF file's path, or set "
                  "LLAMA_ARG_MODEL");
  }
  const bool is_path = model.find('/') != std::string::npos ||
                       (model.size() > 5 && model.compare(model.size() - 5, 5, ".gguf") == 0);
  if (is_path) {
    if (!FileExists(model))
      return Status(Code::kNotFound, "model file '" + model + "' is not there");
    return model;
  }
  if (!IsModelName(model)) {
    return Status(Code::kInvalidArgument, "'" + model + "' is neither a model's name nor a path");
  }
  const std::string path = JoinPath(config.models_dir, model + ".gguf");
  if (FileExists(path)) return path;
  const std::vector<std::string> known = LockNames(config);
  if (known.empty() || std::find(known.begin(), known.end(), model) != known.end()) {
    return Status(Code::kNotFound, "model '" + model + "' is not in " + config.models_dir +
                                       ": kvgraft models pull " + model);
  }
  return Status(Code::kNotFound, "model '" + model + "' is not known; there are " + Joined(known) +
                                     ", or give a GGUF file's path");
}

Result<std::vector<ModelEntry>> ListModels(const Config& config) {
  std::map<std::string, ModelEntry> by_name;
  for (const ModelEntry& entry : LockEntries(config)) by_name[entry.name] = entry;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(config.models_dir, error)) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() == ".gguf" && IsModelName(name)) by_name[name].name = name;
  }
  std::vector<ModelEntry> entries;
  for (auto& [name, entry] : by_name) {
    entry.path = JoinPath(config.models_dir, name + ".gguf");
    entry.file_bytes = RegularFileBytes(entry.path);
    entry.present = entry.file_bytes > 0;
    entries.push_back(entry);
  }
  return entries;
}

Result<std::string> PullModel(const Config& config, const std::string& name, bool accept_licence) {
  if (!IsModelName(name)) {
    return Status(Code::kInvalidArgument, "'" + name + "' is not a model's name");
  }
  const std::vector<std::string> known = LockNames(config);
  if (!known.empty() && std::find(known.begin(), known.end(), name) == known.end()) {
    return Status(Code::kNotFound, "model '" + name + "' is not known; there are " + Joined(known));
  }
  const std::string script = FindShared(config, "models.py");
  if (script.empty()) {
    return Status(Code::kNotFound, "models.py is not beside the program (share/kvgraft/models.py)");
  }
  std::vector<std::string> argv = {"python3", script, "pull", name};
  if (accept_licence) argv.push_back("--accept-licence");
  ProcessOptions options;
  options.environment = {{"KVGRAFT_MODELS", config.models_dir}};
  KVG_ASSIGN(ProcessResult result, RunProcess(argv, options));
  if (result.exit_code == 2) return Status(Code::kInvalidArgument, "");
  if (result.exit_code >= 128) return Status(Code::kCancelled, "");
  if (result.exit_code != 0) return Status(Code::kIo, "");
  const std::string path = JoinPath(config.models_dir, name + ".gguf");
  if (!FileExists(path)) {
    return Status(Code::kInternal, "models.py reported success but " + path + " is not there");
  }
  return path;
}

}  // namespace kvgraft::app
