// What a state of libllama depends on: the model file, the vocabulary, the cache's types and
// layout, RoPE, adapters, the window mode, the tenant; and, apart, the code that computed it.
#include <dlfcn.h>
#include <sys/stat.h>
#if defined(__linux__)
#include <link.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/engine_llama/internal.h"

namespace kvgraft::engine_llama {
namespace {

// The vocabulary as the tokenizer sees it. Token texts and attributes, special tokens, flags.
std::string HashTokenizer(const llama_model* model) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  ByteWriter out;
  out.I32(llama_vocab_type(vocab));
  const int32_t n = llama_vocab_n_tokens(vocab);
  out.I32(n);
  for (int32_t i = 0; i < n; ++i) {
    const char* text = llama_vocab_get_text(vocab, i);
    const std::string_view view = text != nullptr ? text : "";
    out.U32(static_cast<uint32_t>(view.size()));
    out.Bytes(AsBytes(view));
    out.I32(llama_vocab_get_attr(vocab, i));
  }
  for (llama_token t : {llama_vocab_bos(vocab), llama_vocab_eos(vocab), llama_vocab_eot(vocab),
                        llama_vocab_sep(vocab), llama_vocab_pad(vocab)}) {
    out.I32(t);
  }
  out.U8(llama_vocab_get_add_bos(vocab) ? 1 : 0);
  out.U8(llama_vocab_get_add_eos(vocab) ? 1 : 0);
  out.Bytes(AsBytes(MetaValue(model, "tokenizer.ggml.pre")));
  return Sha256Hex(out.bytes());
}

// The files that make up the model: itself, or all parts of "<name>-00001-of-000NN.gguf".
std::vector<std::string> ModelFiles(const std::string& path) {
  constexpr std::string_view kFirst = "-00001-of-";
  const size_t at = path.rfind(kFirst);
  if (at == std::string::npos || path.size() != at + kFirst.size() + 10) return {path};
  const int total = std::atoi(path.substr(at + kFirst.size(), 5).c_str());
  std::vector<std::string> files;
  for (int i = 1; i <= total; ++i) {
    char part[8];
    std::snprintf(part, sizeof part, "%05d", i);
    files.push_back(path.substr(0, at) + "-" + part + path.substr(at + 6));
  }
  return files;
}

// "path size mtime inode ctime" of every file: when none of these changed, neither did the content.
Result<std::string> FileStamp(const std::vector<std::string>& files) {
  std::string stamp;
  for (const std::string& file : files) {
    struct stat st {};
    char* real = ::realpath(file.c_str(), nullptr);
    if (real == nullptr || ::stat(real, &st) != 0) {
      std::free(real);
      return Status(Code::kNotFound, "model file " + file + ": not found");
    }
#if defined(__APPLE__)
    const auto mtime = st.st_mtimespec, ctime = st.st_ctimespec;
#else
    const auto mtime = st.st_mtim, ctime = st.st_ctim;
#endif
    stamp += std::string(real) + " " + std::to_string(st.st_size) + " " +
             std::to_string(mtime.tv_sec) + "." + std::to_string(mtime.tv_nsec) + " " +
             std::to_string(st.st_ino) + " " + std::to_string(ctime.tv_sec) + "." +
             std::to_string(ctime.tv_nsec) + "\n";
    std::free(real);
  }
  return stamp;
}

Result<std::string> HashFiles(const std::vector<std::string>& files) {
  if (files.size() == 1) return Sha256File(files[0]);
  Sha256 all;
  for (const std::string& file : files) {
    KVG_ASSIGN(std::string one, Sha256File(file));
    all.Update(one);
  }
  return all.Finish();
}

// Whether the engine rotates quantised caches by a Hadamard matrix (llama-kv-cache.cpp): a
// quantised type and a head size that is a multiple of 64, unless switched off by environment.
std::string CacheRotation(const std::string& type) {
  if (type.empty() || type[0] == 'f' || type[0] == 'b') return "none";
  const char* off = std::getenv("LLAMA_ATTN_ROT_DISABLE");  // the engine's own switch, not ours
  return off != nullptr && std::atoi(off) != 0 ? "off" : "auto";
}

#if defined(__linux__)
int CollectLibrary(dl_phdr_info* info, size_t, void* data) {
  const std::string path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const size_t slash = path.rfind('/');
  const std::string base = slash == std::string::npos ? path : path.substr(slash + 1);
  if (base.rfind("libllama", 0) == 0 || base.rfind("libggml", 0) == 0) {
    static_cast<std::set<std::string>*>(data)->insert(path);
  }
  return 0;
}
#endif

// SHA-256 over the engine's loaded shared libraries: equal only for equal code. For a statically
// linked engine, over the program itself.
std::string FingerprintLibraries() {
  std::set<std::string> files;
#if defined(__linux__)
  dl_iterate_phdr(CollectLibrary, &files);
#endif
  for (const void* symbol : {reinterpret_cast<const void*>(&llama_version),
                             reinterpret_cast<const void*>(&ggml_version)}) {
    Dl_info where{};
    if (files.empty() && dladdr(symbol, &where) != 0 && where.dli_fname != nullptr) {
      files.insert(where.dli_fname);
    }
  }
  std::vector<std::string> hashes;
  for (const std::string& file : files) {
    Result<std::string> one = Sha256File(file);
    hashes.push_back(one.ok() ? *one : "unreadable");
  }
  std::sort(hashes.begin(), hashes.end());  // the folder does not matter
  std::string all;
  for (const std::string& h : hashes) all += h + "\n";
  return Sha256Hex(all).substr(0, 16);
}

}  // namespace

EngineVersion GetEngineVersion() {
  static const EngineVersion version = [] {
    InstallLog();
    EngineVersion v;
    v.version = llama_version();
    v.ggml = ggml_version();
    v.build = FingerprintLibraries();
    v.system_info = llama_print_system_info();
    // "CPU : SSE3 = 1 | AVX = 1 | ... | " -> "CPU:SSE3,AVX,..."
    for (char c : v.system_info) {
      if (c == '|') c = ',';
      if (c != ' ') v.cpu_features += c;
    }
    while (!v.cpu_features.empty() && v.cpu_features.back() == ',') v.cpu_features.pop_back();
    return v;
  }();
  return version;
}

Status ComputeHashes(ModelState& state) {
  const std::vector<std::string> files = ModelFiles(state.options.path);
  KVG_ASSIGN(std::string stamp, FileStamp(files));
  std::string cache_path;
  if (!state.options.hash_cache_dir.empty()) {
    cache_path = JoinPath(state.options.hash_cache_dir, Sha256Hex(stamp).substr(0, 32) + ".json");
    Result<std::string> kept = ReadFile(cache_path, 1 << 16);
    if (kept.ok()) {
      const auto json = nlohmann::json::parse(*kept, nullptr, false);
      if (json.is_object() && json.value("stamp", "") == stamp) {
        state.sha256 = json.value("model_sha256", "");
        state.tokenizer_sha256 = json.value("tokenizer_sha256", "");
        if (IsSha256Hex(state.sha256) && IsSha256Hex(state.tokenizer_sha256)) return Status::Ok();
      }
    }
  }
  KVG_ASSIGN(state.sha256, HashFiles(files));
  state.tokenizer_sha256 = HashTokenizer(state.model.get());
  KVG_ASSIGN(std::string after, FileStamp(files));
  if (after != stamp) {
    return Status(Code::kMismatch, "model file " + state.options.path +
                                       ": changed while it was being read; try again");
  }
  if (!cache_path.empty()) {
    // A cache: what cannot be kept is computed again next time.
    (void)MakePrivateDirs(state.options.hash_cache_dir).ok();
    const nlohmann::json json = {{"stamp", stamp},
                                 {"model_sha256", state.sha256},
                                 {"tokenizer_sha256", state.tokenizer_sha256}};
    (void)WriteFileAtomic(cache_path, json.dump()).ok();
  }
  return Status::Ok();
}

StateIdentity BuildIdentity(const ModelState& state, const engine::ContextOptions& options,
                            const llama_context* context) {
  const llama_model* model = state.model.get();
  const engine::ModelInfo& info = state.info;
  const std::string& arch = info.architecture;
  StateIdentity id;
  id.SetCompat("model.sha256", state.sha256);
  id.SetCompat("model.arch", arch);
  id.SetCompat("model.n_layer", std::to_string(info.n_layers));
  id.SetCompat("model.n_head", std::to_string(info.n_heads));
  id.SetCompat("model.n_head_kv", std::to_string(info.n_kv_heads));
  id.SetCompat("model.n_embd", std::to_string(info.n_embd));
  id.SetCompat("model.n_vocab", std::to_string(info.n_vocab));
  id.SetCompat("tokenizer.sha256", state.tokenizer_sha256);
  const bool flash = options.attention == engine::Attention::kOn;
  id.SetCompat("cache.attention", flash ? "flash" : "plain");
  id.SetCompat("cache.v_layout", flash ? "rows" : "columns");
  id.SetCompat("cache.type_k", options.type_k);
  id.SetCompat("cache.type_v", options.type_v);
  id.SetCompat("cache.rotation_k", CacheRotation(options.type_k));
  id.SetCompat("cache.rotation_v", CacheRotation(options.type_v));
  const float scale_train = llama_model_rope_freq_scale_train(model);
  const std::string base_train = MetaValue(model, arch + ".rope.freq_base");
  id.SetCompat("rope.type", std::to_string(static_cast<int>(llama_model_rope_type(model))));
  id.SetCompat("rope.freq_base", options.rope_freq_base > 0 ? CanonicalFloat(options.rope_freq_base)
                                 : base_train.empty()
                                     ? "10000"
                                     : CanonicalFloat(std::strtof(base_train.c_str(), nullptr)));
  id.SetCompat("rope.freq_scale",
               CanonicalFloat(options.rope_freq_scale > 0 ? options.rope_freq_scale : scale_train));
  const std::string scaling = MetaValue(model, arch + ".rope.scaling.type");
  id.SetCompat("rope.scaling", scaling.empty() ? "none" : scaling);
  if (scaling == "longrope") {  // chooses its factors by the size of the context
    const std::string orig = MetaValue(model, arch + ".rope.scaling.original_context_length");
    const bool is_long = llama_n_ctx_seq(context) > std::strtoul(orig.c_str(), nullptr, 10);
    id.SetCompat("rope.longrope_factors", is_long ? "long" : "short");
  }
  id.SetCompat("swa.window", std::to_string(info.sliding_window));
  id.SetCompat("swa.full", info.sliding_window == 0 ? "n/a" : options.swa_full ? "true" : "false");
  id.SetCompat("state.format", "llama-seq-" + std::to_string(LLAMA_STATE_SEQ_VERSION));
  id.SetCompat("tenant", state.options.tenant);
  std::string adapters;
  for (const LoadedAdapter& a : state.adapters) {
    if (a.scale != 0)
      adapters += (adapters.empty() ? "" : ",") + a.sha256 + "@" + CanonicalFloat(a.scale);
  }
  id.SetCompat("adapters", adapters.empty() ? "none" : adapters);

  const EngineVersion version = GetEngineVersion();
  id.SetBuild("engine.version", version.version);
  id.SetBuild("engine.ggml", version.ggml);
  id.SetBuild("engine.build", version.build);
  id.SetBuild("cpu.features", version.cpu_features);
  std::string devices;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t dev = ggml_backend_dev_get(i);
    if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) continue;
    devices += (devices.empty() ? "" : ",") + std::string(ggml_backend_dev_description(dev));
  }
  if (!devices.empty()) devices += ";ngl=" + std::to_string(state.options.n_gpu_layers);
  id.SetBuild("engine.devices", devices.empty() ? "cpu" : devices);
  return id;
}

}  // namespace kvgraft::engine_llama
