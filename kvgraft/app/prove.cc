#include "kvgraft/app/prove.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "kvgraft/app/capture.h"
#include "kvgraft/app/document.h"
#include "kvgraft/app/process.h"
#include "kvgraft/app/proof_file.h"
#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/eval/restore_request.h"

namespace kvgraft::app {
namespace {

constexpr uint64_t kMaxFileBytes = 4 << 20, kMaxAllBytes = 64 << 20;

// A private folder in the cache folder, removed with all that is in it.
class TempDir {
 public:
  static Result<std::unique_ptr<TempDir>> Make(const std::string& parent) {
    KVG_RETURN(MakePrivateDirs(parent));
    RemoveOld(parent);
    std::string path = JoinPath(parent, "prove-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      return Status(Code::kIo, "cannot make a folder in " + parent + ": " + std::strerror(errno));
    }
    auto dir = std::make_unique<TempDir>();
    dir->path_ = path;
    return dir;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  // What a killed process left behind.
  static void RemoveOld(const std::string& parent) {
    std::error_code error;
    const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
    for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
      const bool ours = entry.path().filename().string().rfind("prove-", 0) == 0;
      if (!ours || !entry.is_directory(error) || entry.last_write_time(error) > before) continue;
      std::filesystem::remove_all(entry.path(), error);
    }
  }

  std::string path_;
};

Result<std::string> RestoreElsewhere(const std::vector<std::string>& model_args,
                                     const std::string& request) {
  std::vector<std::string> argv = {ProgramPath(), "prove-restore", "-q"};
  argv.insert(argv.end(), model_args.begin(), model_args.end());
  ProcessOptions options;
  options.input = request;
  KVG_ASSIGN(ProcessResult result, RunProcess(argv, options));
  // A child that was interrupted has been so by the same Ctrl-C.
  if (result.exit_code == ExitCode(Code::kCancelled))
    return Status(Code::kCancelled, "interrupted");
  if (result.exit_code != 0) {
    return Status(Code::kInternal,
                  "the process that restores ended with code " + std::to_string(result.exit_code));
  }
  return result.output;
}

ProofSettings SettingsOf(const ProveOptions& options, const eval::ProveOptions& prove,
                         const session::ExactProfile& profile) {
  ProofSettings settings;
  settings.profile = profile.key;
  settings.attention = prove.context.attention == engine::Attention::kOn ? "flash" : "plain";
  settings.row_quantum = prove.context.row_quantum;
  settings.seed = options.seed;
  settings.max_tokens = options.max_tokens;
  if (!prove.texts.empty()) {
    std::string hashes;
    for (const std::string& text : prove.texts) hashes += Sha256Hex(text);
    settings.texts = Sha256Hex(hashes);
  }
  settings.other_process = options.other_process;
  return settings;
}

}  // namespace

Result<std::vector<std::string>> ReadTexts(const std::string& dir) {
  std::vector<std::string> paths, texts;
  std::error_code error;
  std::filesystem::recursive_directory_iterator walk(dir, error), end;
  if (error) return Status(Code::kNotFound, "texts: '" + dir + "': " + error.message());
  for (; walk != end; walk.increment(error)) {
    if (error) return Status(Code::kIo, "texts: '" + dir + "': " + error.message());
    if (walk->is_regular_file(error) && walk->file_size(error) <= kMaxFileBytes) {
      paths.push_back(walk->path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    auto text = ReadDocument(path);  // fails for what is not UTF-8, which is left out
    if (!text.ok() || text->empty() || text->find('\0') != std::string::npos) continue;
    bytes += text->size();
    if (bytes > kMaxAllBytes) break;
    texts.push_back(std::move(*text));
  }
  if (texts.empty()) return Status(Code::kNotFound, "texts: '" + dir + "' has no UTF-8 text file");
  return texts;
}

Result<ProveOutcome> RunProve(Runtime& runtime, const ProveOptions& options,
                              const eval::SampleDone& on_sample) {
  const double start = NowMs();
  ProveOutcome outcome;
  eval::ProveOptions prove;
  if (!options.texts_dir.empty()) {
    KVG_ASSIGN(prove.texts, ReadTexts(options.texts_dir));
  }
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  KVG_ASSIGN(outcome.profile, runtime.Profile());
  KVG_ASSIGN(prove.context, runtime.ContextFor(runtime.config().n_ctx));
  outcome.context = prove.context;
  prove.samples = options.samples;
  prove.seed = options.seed;
  prove.max_tokens = options.max_tokens;
  prove.min_tokens = std::min(prove.min_tokens, options.max_tokens);
  const ProofSettings settings = SettingsOf(options, prove, outcome.profile);
  if (options.resume && FileExists(options.out)) {
    KVG_RETURN(ReadProof(options.out, settings, &outcome));
    if (outcome.report.samples.size() > options.samples) {
      return Status(Code::kMismatch, options.out + ": has " +
                                         std::to_string(outcome.report.samples.size()) +
                                         " samples, more than the " +
                                         std::to_string(options.samples) + " asked for");
    }
  }
  prove.first_sample = static_cast<uint32_t>(outcome.report.samples.size());
  const double before_ms = outcome.total_ms;
  std::unique_ptr<TempDir> temp;
  if (options.other_process) {
    KVG_ASSIGN(temp, TempDir::Make(runtime.config().cache_dir));
    prove.temp_dir = temp->path();
    prove.other_process = [&options](const std::string& request) {
      return RestoreElsewhere(options.model_args, request);
    };
  }
  Status written;
  const auto keep = [&](const eval::ProveSample& sample, size_t done, size_t total) {
    outcome.report.samples.push_back(sample);
    outcome.total_ms = before_ms + NowMs() - start;
    if (!options.out.empty()) written = WriteProof(options.out, options.model, settings, outcome);
    return written.ok() && on_sample(sample, done, total);
  };
  KVG_ASSIGN(const eval::ProveReport report, eval::Prove(*model, prove, keep));
  KVG_RETURN(written);
  outcome.report.new_process_skipped += report.new_process_skipped;
  outcome.total_ms = before_ms + NowMs() - start;
  if (!options.out.empty()) {
    KVG_RETURN(WriteProof(options.out, options.model, settings, outcome));
  }
  return outcome;
}

Result<std::string> RunProveRestore(Runtime& runtime, const std::string& request_json) {
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  return eval::RunRestoreRequest(*model, request_json);
}

}  // namespace kvgraft::app
