#include "kvgraft/app/runtime.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "kvgraft/app/models.h"
#include "kvgraft/core/file.h"
#include "kvgraft/engine_llama/engine_llama.h"

namespace kvgraft::app {
namespace {

bool ParseNumber(std::string_view text, uint64_t* out) {
  auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && at == text.data() + text.size() && !text.empty();
}

}  // namespace

Result<engine::ToyOptions> ParseToy(const std::string& model) {
  engine::ToyOptions toy;
  if (model == "toy") return toy;
  std::istringstream parts(model.substr(std::min<size_t>(4, model.size())));
  std::string part;
  for (bool first = true; std::getline(parts, part, ','); first = false) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    uint64_t number = 0;
    const bool numeric = ParseNumber(value, &number) && number <= UINT32_MAX;
    if (first && equals == std::string::npos && ParseNumber(part, &toy.weight_seed)) {
      toy.name = "toy-" + part;
    } else if (key == "window" && numeric) {
      toy.sliding_window = static_cast<uint32_t>(number);
    } else if (key == "quantum" && numeric) {
      // Other kernels are another build: a kept self-test must not speak for them.
      toy.kernel_quantum = static_cast<uint32_t>(number);
      toy.build += ",quantum=" + value;
    } else if (key == "fail_decode" && numeric) {
      toy.fail_decode_after = static_cast<uint32_t>(number);
    } else if (key == "build" && !value.empty()) {
      toy.build = value;
    } else if (part == "no_template") {
      toy.chat_template = false;
    } else if (part == "pooled") {
      toy.pooled = true;
    } else if (part == "fail_load") {
      toy.fail_load_image = true;
    } else {
      return Status(Code::kInvalidArgument,
                    "-m " + model + ": '" + part + "' is not an option of toy");
    }
  }
  return toy;
}

EngineInfo GetEngineInfo() {
  const auto version = engine_llama::GetEngineVersion();
  return {version.version, version.ggml, version.build, version.system_info, version.cpu_features};
}

void ShowEngineLog(const Hooks& hooks) {
  engine_llama::SetLogSink([hooks](const std::string& line) { hooks.Note(line); });
}

Result<store::Store*> Runtime::OpenStore(bool evict) {
  if (!store_) {
    store::StoreOptions options;
    options.root = config_.store_root;
    options.budget_bytes = config_.budget_bytes;
    options.free_floor_bytes = config_.free_floor_bytes;
    options.evict_at_open = evict;
    KVG_ASSIGN(store_, store::Store::Open(options));
    for (const std::string& warning : store_->warnings()) hooks_.Note("store: " + warning);
  }
  return store_.get();
}

Result<engine::Model*> Runtime::OpenModel() {
  if (model_) return model_.get();
  if (IsToyModel(config_.model)) {
    KVG_ASSIGN(engine::ToyOptions toy, ParseToy(config_.model));
    model_ = engine::NewToyModel(toy);
    return model_.get();
  }
  engine_llama::ModelOptions options;
  KVG_ASSIGN(options.path, ResolveModel(config_, config_.model));
  options.n_gpu_layers = config_.n_gpu_layers;
  for (const Adapter& adapter : config_.adapters) {
    options.adapters.push_back({adapter.path, adapter.scale});
  }
  options.tenant = config_.tenant;
  options.hash_cache_dir = config_.cache_dir;
  KVG_ASSIGN(model_, engine_llama::LoadModel(options, hooks_.Stage("load model")));
  return model_.get();
}

std::string Runtime::ProfileDir() const {
  return config_.cache_dir.empty() ? "" : JoinPath(config_.cache_dir, "doctor");
}

session::DoctorOptions Runtime::SelfTestOptions() const {
  session::DoctorOptions options;
  options.context.n_ubatch = config_.n_ubatch;
  options.context.n_threads = config_.n_threads;
  options.context.attention = config_.attention;
  options.context.type_k = config_.type_k;
  options.context.type_v = config_.type_v;
  options.context.swa_full = config_.swa_full;
  options.context.rope_freq_base = config_.rope_freq_base;
  options.context.rope_freq_scale = config_.rope_freq_scale;
  options.context.n_ctx = 1024;
  return options;
}

Result<session::ExactProfile> Runtime::Profile() {
  if (!profile_) {
    KVG_ASSIGN(profile_, SelfTest(/*exhaustive=*/false));
  }
  return *profile_;
}

Result<session::ExactProfile> Runtime::RunSelfTest() {
  KVG_ASSIGN(profile_, SelfTest(/*exhaustive=*/true));
  return *profile_;
}

Result<session::ExactProfile> Runtime::SelfTest(bool exhaustive) {
  KVG_ASSIGN(engine::Model * model, OpenModel());
  if (!model->info().unsupported.empty()) {
    return Status(Code::kUnsupported,
                  "this model's state cannot be captured: " + model->info().unsupported);
  }
  session::DoctorOptions options = SelfTestOptions();
  options.exhaustive = exhaustive;
  auto on_run = [this, exhaustive] {
    if (exhaustive) return;
    hooks_.Note("first use of this model and configuration here: running the self-test");
  };
  auto profile =
      session::LoadOrRunDoctor(*model, options, ProfileDir(), on_run, hooks_.Stage("self-test"));
  if (!profile.ok()) return profile.status().Annotate("self-test");
  if (!profile->keep_error.empty()) {
    hooks_.Note("the self-test's result could not be kept: " + profile->keep_error);
  }
  return profile;
}

Result<StateIdentity> Runtime::Identity() {
  KVG_ASSIGN(engine::Model * model, OpenModel());
  KVG_ASSIGN(const engine::ContextOptions options, ContextFor(256));
  KVG_ASSIGN(const std::unique_ptr<engine::Context> context, model->NewContext(options));
  return context->identity();
}

Result<session::DriftRecord> Runtime::Drift(const StateIdentity& identity, uint32_t link_tokens) {
  KVG_ASSIGN(engine::Model * model, OpenModel());
  session::DriftOptions options;
  KVG_ASSIGN(options.context, ContextFor(0));
  auto on_run = [this] {
    hooks_.Note("first composition with this model and configuration: calibrating the drift gate");
  };
  KVG_ASSIGN(const std::vector<session::DriftRecord> records,
             session::LoadOrCalibrateDrift(*model, identity, options, {&link_tokens, 1},
                                           ProfileDir(), on_run, hooks_.Stage("calibrate")));
  const std::string& error = records[0].keep_error;
  if (!error.empty()) hooks_.Note("the calibration could not be kept: " + error);
  return records[0];
}

std::vector<session::DriftRecord> Runtime::KeptDrift(const StateIdentity& identity) const {
  return session::LoadDriftRecords(ProfileDir(), session::DriftKey(identity));
}

Result<engine::ContextOptions> Runtime::ContextFor(uint32_t n_ctx) {
  KVG_ASSIGN(session::ExactProfile profile, Profile());
  engine::ContextOptions options = SelfTestOptions().context;
  options.n_ctx = n_ctx;
  if (profile.holds) {
    options.attention = profile.attention;
    options.row_quantum = profile.row_quantum;
  } else if (options.attention == engine::Attention::kAuto) {
    options.attention = engine::Attention::kOff;
  }
  return options;
}

Result<std::unique_ptr<engine::Context>> Runtime::NewContext(uint64_t needed, uint64_t least) {
  KVG_ASSIGN(engine::Model * model, OpenModel());
  const uint64_t trained = model->info().n_ctx_train;
  uint64_t n_ctx = config_.n_ctx;
  if (n_ctx == 0) {
    n_ctx = (needed + 255) / 256 * 256;
    if (trained > 0) n_ctx = std::min(n_ctx, trained);
  }
  if (n_ctx < least) {
    const std::string given = config_.n_ctx > 0
                                  ? "-c gives " + std::to_string(n_ctx)
                                  : "the model was trained with " + std::to_string(n_ctx);
    return Status(Code::kExhausted, "the context is too small: " + std::to_string(least) +
                                        " tokens are needed and " + given +
                                        (config_.n_ctx > 0 ? "; use a larger -c" : ""));
  }
  if (n_ctx > UINT32_MAX) return Status(Code::kExhausted, "the context is too large");
  KVG_ASSIGN(engine::ContextOptions options, ContextFor(static_cast<uint32_t>(n_ctx)));
  return model->NewContext(options);
}

}  // namespace kvgraft::app
