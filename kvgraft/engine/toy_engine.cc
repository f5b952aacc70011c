#include "kvgraft/engine/toy_engine.h"

#include <array>
#include <cmath>
#include <utility>

#include "kvgraft/engine/toy_context.h"

namespace kvgraft::engine {
namespace {

constexpr uint32_t kContextTrained = 4096;

constexpr std::array<std::pair<std::string_view, Token>, 5> kSpecial = {{
    {"<|bos|>", kToyBos},
    {"<|end|>", kToyEnd},
    {"<|user|>", kToyUser},
    {"<|assistant|>", kToyAssistant},
    {"<|system|>", kToySystem},
}};

ModelInfo MakeInfo(const toy::Net& net, const ToyOptions& options) {
  ModelInfo info;
  info.path = "toy:" + std::to_string(options.weight_seed);
  info.name = options.name;
  info.architecture = "toy";
  info.n_params = net.n_params();
  info.description = "toy " + std::to_string(info.n_params / 1000) + "K F32";
  info.file_bytes = info.n_params * sizeof(float);
  info.n_layers = toy::kLayers;
  info.n_heads = toy::kHeads;
  info.n_kv_heads = toy::kKvHeads;
  info.n_embd = toy::kEmbd;
  info.n_vocab = toy::kVocab;
  info.n_ctx_train = kContextTrained;
  info.sliding_window = options.sliding_window;
  info.has_pooling = options.pooled;
  info.has_chat_template = options.chat_template;
  info.state_alignment = options.sliding_window > 0 ? 64 : 1;
  return info;
}

class ToyModel : public Model {
 public:
  explicit ToyModel(const ToyOptions& options)
      : options_(options),
        net_(std::make_shared<const toy::Net>(options.weight_seed)),
        info_(MakeInfo(*net_, options)) {}

  const ModelInfo& info() const override { return info_; }

  Result<std::unique_ptr<Context>> NewContext(const ContextOptions& options) override {
    KVG_ASSIGN(ContextOptions resolved, toy::ResolveOptions(options, kContextTrained));
    return std::unique_ptr<Context>(new toy::ToyContext(net_, options_, resolved));
  }

  Result<std::vector<Token>> Tokenize(std::string_view text, bool add_bos,
                                      bool parse_special) const override {
    std::vector<Token> tokens;
    tokens.reserve(text.size() + 1);
    if (add_bos) tokens.push_back(kToyBos);
    while (!text.empty()) {
      const auto* special = parse_special ? SpecialAt(text) : nullptr;
      if (special != nullptr) {
        tokens.push_back(special->second);
        text.remove_prefix(special->first.size());
      } else {
        tokens.push_back(static_cast<uint8_t>(text[0]));
        text.remove_prefix(1);
      }
    }
    return tokens;
  }

  std::string TokenText(Token token, bool special) const override {
    if (token >= 0 && token < 256) return std::string(1, static_cast<char>(token));
    for (const auto& [text, id] : kSpecial) {
      if (special && id == token) return std::string(text);
    }
    return "";
  }

  bool IsEndOfGeneration(Token token) const override { return token == kToyEnd; }

  Result<std::string> ApplyChatTemplate(std::span<const ChatMessage> messages,
                                        bool add_assistant) const override {
    if (!options_.chat_template)
      return Status(Code::kUnsupported, "model '" + info_.name + "' has no chat template");
    std::string out;
    for (const ChatMessage& m : messages) out += "<|" + m.role + "|>\n" + m.content + "<|end|>\n";
    if (add_assistant) out += "<|assistant|>\n";
    return out;
  }

  Result<std::vector<float>> Embed(std::string_view text) override {
    if (!options_.pooled)
      return Status(Code::kUnsupported, "model '" + info_.name + "' does not pool embeddings");
    KVG_ASSIGN(const std::vector<Token> tokens, Tokenize(text, true, false));
    if (tokens.size() > kContextTrained)
      return Status(Code::kExhausted, "toy model: the text has " + std::to_string(tokens.size()) +
                                          " tokens, the longest to embed is 4096");
    toy::Cells cells;
    std::array<float, toy::kEmbd> hidden;
    std::vector<double> sum(toy::kEmbd);
    for (size_t i = 0; i < tokens.size(); ++i) {
      net_->Forward(tokens[i], static_cast<Pos>(i), 0, {}, {}, options_.sliding_window, cells,
                    hidden.data());
      for (uint32_t d = 0; d < toy::kEmbd; ++d) sum[d] += hidden[d];
    }
    double square = 0;
    for (double s : sum) square += s * s;
    const double norm = std::sqrt(square);
    std::vector<float> out(toy::kEmbd);
    for (uint32_t d = 0; d < toy::kEmbd; ++d)
      out[d] = norm > 0 ? static_cast<float>(sum[d] / norm) : 0.0f;
    return out;
  }

 private:
  static const std::pair<std::string_view, Token>* SpecialAt(std::string_view text) {
    for (const auto& entry : kSpecial) {
      if (text.substr(0, entry.first.size()) == entry.first) return &entry;
    }
    return nullptr;
  }

  ToyOptions options_;
  std::shared_ptr<const toy::Net> net_;
  ModelInfo info_;
};

}  // namespace

std::unique_ptr<Model> NewToyModel(const ToyOptions& options) {
  return std::make_unique<ToyModel>(options);
}

}  // namespace kvgraft::engine
