#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kvgraft/core/hash.h"
#include "kvgraft/engine_llama/internal.h"

namespace kvgraft::engine_llama {
namespace {

using engine::Token;

// The file must be there and begin like a GGUF before libllama opens it.
Status CheckModelFile(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    return Status(Code::kNotFound, "model " + path + ": no such file");
  }
  if (!S_ISREG(st.st_mode)) {
    return Status(Code::kInvalidArgument, "model " + path + ": not a regular file");
  }
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return Status(Code::kIo, "model " + path + ": " + std::strerror(errno));
  }
  char magic[4] = {};
  const size_t got = std::fread(magic, 1, 4, file);
  std::fclose(file);
  if (got != 4 || std::memcmp(magic, "GGUF", 4) != 0) {
    return Status(Code::kCorrupt, "model " + path + ": not a GGUF file (first bytes are not GGUF)");
  }
  return Status::Ok();
}

// Why the state of this model cannot be captured, or "".
std::string StateObstacle(const llama_model* model) {
  if (llama_model_is_diffusion(model)) return "it is a diffusion model";
  switch (llama_model_rope_type(model)) {
    case LLAMA_ROPE_TYPE_MROPE:
    case LLAMA_ROPE_TYPE_IMROPE:
    case LLAMA_ROPE_TYPE_VISION:
      return "its positions have several dimensions (M-RoPE)";
    default:
      return "";
  }
}

engine::ModelInfo ReadInfo(const ModelState& state) {
  const llama_model* model = state.model.get();
  engine::ModelInfo info;
  info.path = state.options.path;
  info.name = MetaValue(model, "general.name");
  info.architecture = MetaValue(model, "general.architecture");
  char text[256] = {};
  llama_model_desc(model, text, sizeof text);
  info.description = text;
  info.file_bytes = llama_model_size(model);
  info.n_params = llama_model_n_params(model);
  info.n_layers = static_cast<uint32_t>(llama_model_n_layer(model));
  info.n_heads = static_cast<uint32_t>(llama_model_n_head(model));
  info.n_kv_heads = static_cast<uint32_t>(llama_model_n_head_kv(model));
  info.n_embd = static_cast<uint32_t>(llama_model_n_embd(model));
  info.n_vocab = static_cast<uint32_t>(llama_vocab_n_tokens(state.vocab()));
  info.n_ctx_train = static_cast<uint32_t>(llama_model_n_ctx_train(model));
  info.sliding_window = static_cast<uint32_t>(std::max(0, llama_model_n_swa(model)));
  const std::string pooling = MetaValue(model, info.architecture + ".pooling_type");
  const std::string causal = MetaValue(model, info.architecture + ".attention.causal");
  info.has_pooling = !pooling.empty() && pooling != "0";
  info.has_decoder = llama_model_has_decoder(model) && causal != "false";
  info.has_chat_template = llama_model_chat_template(model, nullptr) != nullptr;
  info.recurrent = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
  info.state_alignment = info.sliding_window > 0 || info.recurrent ? 64 : 1;
  info.unsupported = StateObstacle(model);
  if (!info.has_decoder) info.unsupported = "it has no decoder (an embedding model)";
  return info;
}

class LlamaModel : public engine::Model {
 public:
  explicit LlamaModel(std::shared_ptr<ModelState> state) : state_(std::move(state)) {}

  const engine::ModelInfo& info() const override { return state_->info; }

  Result<std::unique_ptr<engine::Context>> NewContext(
      const engine::ContextOptions& options) override {
    return NewLlamaContext(state_, options);
  }

  Result<std::vector<Token>> Tokenize(std::string_view text, bool add_bos,
                                      bool parse_special) const override {
    std::vector<Token> tokens;
    const llama_vocab* vocab = state_->vocab();
    if (add_bos && llama_vocab_get_add_bos(vocab)) tokens.push_back(llama_vocab_bos(vocab));
    KVG_RETURN(TokenizeRaw(text, false, parse_special, &tokens));
    return tokens;
  }

  std::string TokenText(Token token, bool special) const override {
    std::string text(64, '\0');
    int32_t n = Piece(token, special, text);
    if (n < 0) {
      text.resize(static_cast<size_t>(-n));
      n = Piece(token, special, text);
    }
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }

  bool IsEndOfGeneration(Token token) const override {
    return llama_vocab_is_eog(state_->vocab(), token);
  }

  Result<std::string> ApplyChatTemplate(std::span<const engine::ChatMessage> messages,
                                        bool add_assistant) const override {
    const char* tmpl = llama_model_chat_template(state_->model.get(), nullptr);
    if (tmpl == nullptr) {
      return Status(Code::kUnsupported, "model " + state_->info.path + ": has no chat template");
    }
    std::vector<llama_chat_message> chat;
    size_t size = 256;
    for (const engine::ChatMessage& m : messages) {
      chat.push_back({m.role.c_str(), m.content.c_str()});
      size += m.role.size() + 2 * m.content.size() + 64;
    }
    std::string out(size, '\0');
    int32_t n = Apply(tmpl, chat, add_assistant, out);
    if (n > static_cast<int32_t>(out.size())) {
      out.resize(static_cast<size_t>(n));
      n = Apply(tmpl, chat, add_assistant, out);
    }
    if (n < 0) {
      return Status(
          Code::kUnsupported,
          "model " + state_->info.path + ": libllama does not know its chat template; use --raw");
    }
    out.resize(static_cast<size_t>(n));
    return out;
  }

  Result<std::vector<float>> Embed(std::string_view text) override;

 private:
  int32_t Piece(Token token, bool special, std::string& out) const {
    return llama_token_to_piece(state_->vocab(), token, out.data(),
                                static_cast<int32_t>(out.size()), 0, special);
  }
  static int32_t Apply(const char* tmpl, const std::vector<llama_chat_message>& chat,
                       bool assistant, std::string& out) {
    return llama_chat_apply_template(tmpl, chat.data(), chat.size(), assistant, out.data(),
                                     static_cast<int32_t>(out.size()));
  }
  Status TokenizeRaw(std::string_view text, bool add_special, bool parse_special,
                     std::vector<Token>* tokens) const;
  Status OpenEmbedder();

  std::shared_ptr<ModelState> state_;
  ContextPtr embedder_;
};

Status LlamaModel::TokenizeRaw(std::string_view text, bool add_special, bool parse_special,
                               std::vector<Token>* tokens) const {
  if (text.empty() && !add_special) return Status::Ok();
  if (text.size() > static_cast<size_t>(INT32_MAX)) {
    return Status(Code::kInvalidArgument, "text of " + std::to_string(text.size()) +
                                              " bytes: at most 2 GiB can be tokenised at once");
  }
  const auto length = static_cast<int32_t>(text.size());
  const size_t before = tokens->size();
  tokens->resize(before + text.size() / 2 + 16);
  auto room = [&] { return static_cast<int32_t>(tokens->size() - before); };
  int32_t n = llama_tokenize(state_->vocab(), text.data(), length, tokens->data() + before, room(),
                             add_special, parse_special);
  if (n < 0 && n != INT32_MIN) {
    tokens->resize(before + static_cast<size_t>(-n));
    n = llama_tokenize(state_->vocab(), text.data(), length, tokens->data() + before, room(),
                       add_special, parse_special);
  }
  if (n < 0) {
    tokens->resize(before);
    return Status(Code::kInvalidArgument, "text cannot be tokenised by " + state_->info.path);
  }
  tokens->resize(before + static_cast<size_t>(n));
  return Status::Ok();
}

Status LlamaModel::OpenEmbedder() {
  if (embedder_) return Status::Ok();
  llama_context_params params = llama_context_default_params();
  params.n_ctx = state_->info.n_ctx_train;
  params.n_batch = params.n_ubatch = params.n_ctx;  // a pooled text is one batch
  params.embeddings = true;
  params.no_perf = true;
  TakeErrorLog();
  embedder_.reset(llama_init_from_model(state_->model.get(), params));
  if (!embedder_) {
    return Status(Code::kExhausted, "embedding context for " + state_->info.path +
                                        " could not be made: " + TakeErrorLog());
  }
  return Status::Ok();
}

Result<std::vector<float>> LlamaModel::Embed(std::string_view text) {
  if (!state_->info.has_pooling) {
    return Status(Code::kUnsupported, "model " + state_->info.path +
                                          ": has no pooling, so it makes no embeddings; use an "
                                          "embedding model (BERT, nomic, e5, ... as GGUF)");
  }
  KVG_RETURN(OpenEmbedder());
  std::vector<Token> tokens;
  KVG_RETURN(TokenizeRaw(text, true, false, &tokens));
  if (tokens.empty()) return Status(Code::kInvalidArgument, "embedding of an empty text");
  if (tokens.size() > llama_n_ctx(embedder_.get())) {
    return Status(Code::kExhausted, "text has " + std::to_string(tokens.size()) +
                                        " tokens, the embedding model takes " +
                                        std::to_string(llama_n_ctx(embedder_.get())));
  }
  if (llama_memory_t memory = llama_get_memory(embedder_.get())) llama_memory_clear(memory, true);
  llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < batch.n_tokens; ++i) {
    batch.token[i] = tokens[static_cast<size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  TakeErrorLog();
  const int32_t failed = state_->info.has_decoder ? llama_decode(embedder_.get(), batch)
                                                  : llama_encode(embedder_.get(), batch);
  llama_batch_free(batch);
  const float* values = failed == 0 ? llama_get_embeddings_seq(embedder_.get(), 0) : nullptr;
  if (values == nullptr) {
    return Status(Code::kInternal, "embedding failed in libllama: " + TakeErrorLog());
  }
  std::vector<float> out(values, values + llama_model_n_embd_out(state_->model.get()));
  double norm = 0;
  for (float v : out) norm += static_cast<double>(v) * v;
  norm = std::sqrt(norm);
  for (float& v : out) v = norm > 0 ? static_cast<float>(v / norm) : 0;
  return out;
}

Status LoadAdapters(ModelState& state) {
  for (const AdapterOptions& a : state.options.adapters) {
    LoadedAdapter loaded;
    KVG_ASSIGN(loaded.sha256, Sha256File(a.path));
    TakeErrorLog();
    loaded.handle.reset(llama_adapter_lora_init(state.model.get(), a.path.c_str()));
    if (!loaded.handle) {
      return Status(Code::kMismatch,
                    "adapter " + a.path + ": does not load for this model: " + TakeErrorLog());
    }
    loaded.scale = a.scale;
    state.adapters.push_back(std::move(loaded));
  }
  return Status::Ok();
}

struct LoadProgress {
  const engine::Progress* progress;
  bool cancelled = false;
};

bool OnLoadProgress(float done, void* data) {
  auto* p = static_cast<LoadProgress*>(data);
  if (*p->progress && !(*p->progress)(static_cast<size_t>(done * 1000), 1000)) p->cancelled = true;
  return !p->cancelled;
}

}  // namespace

std::string MetaValue(const llama_model* model, const std::string& key) {
  char value[512] = {};
  const int32_t n = llama_model_meta_val_str(model, key.c_str(), value, sizeof value);
  if (n < 0) return "";
  if (n < static_cast<int32_t>(sizeof value)) return value;
  std::string large(static_cast<size_t>(n) + 1, '\0');
  llama_model_meta_val_str(model, key.c_str(), large.data(), large.size());
  large.resize(static_cast<size_t>(n));
  return large;
}

Result<std::unique_ptr<engine::Model>> LoadModel(const ModelOptions& options,
                                                 const engine::Progress& progress) {
  InstallLog();
  KVG_RETURN(CheckModelFile(options.path));
  auto state = std::make_shared<ModelState>();
  state->options = options;

  LoadProgress load{&progress};
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = options.n_gpu_layers;
  params.vocab_only = options.vocabulary_only;
  params.progress_callback = OnLoadProgress;
  params.progress_callback_user_data = &load;
  TakeErrorLog();
  try {
    state->model.reset(llama_model_load_from_file(options.path.c_str(), params));
  } catch (const std::exception& e) {
    return Status(Code::kCorrupt, "model " + options.path + ": " + e.what());
  }
  if (load.cancelled) return Status(Code::kCancelled, "loading " + options.path + ": interrupted");
  if (!state->model) {
    return Status(Code::kCorrupt, "model " + options.path +
                                      ": does not load (damaged, cut off, or of an architecture "
                                      "that this libllama does not know): " +
                                      TakeErrorLog());
  }
  state->info = ReadInfo(*state);
  if (!options.vocabulary_only) {
    KVG_RETURN(LoadAdapters(*state));
    KVG_RETURN(ComputeHashes(*state));
  }
  return std::unique_ptr<engine::Model>(new LlamaModel(std::move(state)));
}

}  // namespace kvgraft::engine_llama
