// The engine behind every algorithm here: a model (frozen weights, vocabulary) and contexts (the
// live state). Two implementations: ToyEngine, a tiny deterministic transformer for tests, and
// engine_llama over stock libllama. Nothing above this header knows which one it talks to.
//
// Threads: a Model may be shared by threads for reading; a Context belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/identity.h"
#include "kvgraft/core/image_buffer.h"
#include "kvgraft/core/kv_state.h"
#include "kvgraft/core/status.h"

namespace kvgraft::engine {

using Token = int32_t;
using Pos = int32_t;

// Called with (tokens done, tokens in all); returns false to interrupt (kCancelled).
using Progress = std::function<bool(size_t done, size_t total)>;

enum class Attention { kAuto, kOn, kOff };  // flash attention

// How rows are put into batches.
enum class Schedule {
  // Every batch padded to a multiple of the row quantum: the state and the logits do not depend on
  // how the tokens were split. What is stored as exact is computed so.
  kExact,
  // As the engine does it ordinarily: batches as long as the input, single rows in generation.
  // Faster for one user, and the bits depend on the split.
  kFast,
};

struct ContextOptions {
  uint32_t n_ctx = 4096;    // tokens of the live sequence; 0: what the model was trained with
  uint32_t n_ubatch = 512;  // rows per physical batch; a multiple of row_quantum
  uint32_t n_threads = 0;   // 0: the machine's cores
  Attention attention = Attention::kOff;
  uint32_t row_quantum = 8;  // kExact pads to this many rows; 1 pads nothing
  std::string type_k = "f16";
  std::string type_v = "f16";
  bool swa_full = true;       // full-size cache for sliding-window layers
  float rope_freq_base = 0;   // 0: from the model
  float rope_freq_scale = 0;  // 0: from the model
  bool embeddings = false;    // a context for Embed() only
};

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ModelInfo {
  std::string path;  // as given
  std::string name;  // general.name of the file, for display only, never an identity
  std::string architecture;
  std::string description;  // "llama 135M Q4_1"
  uint64_t file_bytes = 0;
  uint64_t n_params = 0;
  uint32_t n_layers = 0, n_heads = 0, n_kv_heads = 0, n_embd = 0, n_vocab = 0;
  uint32_t n_ctx_train = 0;
  uint32_t sliding_window = 0;  // tokens; 0: none
  bool has_decoder = true;      // false: an embedding model
  bool has_pooling = false;     // Embed() works
  bool has_chat_template = false;
  // The state, or a part of it, is recurrent: it stands at its own position, and goes back to
  // checkpoints only.
  bool recurrent = false;
  // Artifacts must end at a multiple of this many tokens (64 for sliding-window and recurrent
  // models, else 1).
  uint32_t state_alignment = 1;
  // Non-empty: this model's state cannot be captured, and why ("its positions have ...").
  std::string unsupported;
};

// F32 logits, [rows][n_vocab], row-major.
struct Logits {
  std::vector<float> values;
  size_t rows = 0;
  size_t n_vocab = 0;
  std::span<const float> row(size_t i) const {
    return std::span<const float>(values).subspan(i * n_vocab, n_vocab);
  }
};

class Context {
 public:
  virtual ~Context() = default;

  // Everything that the bits of this context's state depend on.
  virtual const StateIdentity& identity() const = 0;
  virtual const ContextOptions& options() const = 0;  // as resolved: no 0 and no kAuto left

  virtual uint32_t n_ctx() const = 0;  // tokens that the live sequence can hold
  // The live sequence holds the positions first_pos .. n_past-1; first_pos is 0 but after StartAt
  // and LoadImageAt.
  virtual Pos n_past() const = 0;
  virtual Pos first_pos() const = 0;

  // Empties the live sequence.
  Status Clear() { return StartAt(0); }
  // Empties it, and the next token gets the position `first`: for what stands far from its text's
  // beginning, as a moved graft does.
  virtual Status StartAt(Pos first) = 0;
  // Drops positions n and above; n >= first_pos. kUnsupported where the state cannot be cut: a
  // window that has moved on, a recurrent state without a checkpoint before n.
  virtual Status Truncate(Pos n) = 0;

  // Appends `tokens` at n_past. The logits of the last `n_logits` (0 .. tokens.size()) tokens go to
  // `logits`, which may be null when n_logits is 0. Fails with kExhausted, before anything is
  // computed, when the tokens do not fit; after kCancelled or kInternal the sequence holds a
  // prefix of what it should (n_past() tells), never something else.
  virtual Status Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits,
                        Logits* logits, const Progress& progress = {}) = 0;

  // The engine's own bytes of the live sequence, opaque: valid for an equal StateIdentity only. An
  // empty sequence has an image too, which LoadImage does not take.
  virtual Result<size_t> ImageBytes() = 0;
  virtual Status SaveImage(MutableByteSpan out) = 0;  // out.size() == ImageBytes()
  // Ok when `image` is a well-formed state of tokens at positions first .. end-1 that fits this
  // context. Pure: neither the context nor the engine is touched.
  virtual Status CheckImageAt(ByteSpan image, Pos first, Pos end) const = 0;
  Status CheckImage(ByteSpan image, Pos n_tokens) const { return CheckImageAt(image, 0, n_tokens); }
  // Replaces the live sequence. Runs CheckImageAt first; when that fails the sequence is as it was.
  // Should the engine itself fail afterwards the sequence is empty, and usable.
  virtual Status LoadImageAt(ByteSpan image, Pos first, Pos end) = 0;
  Status LoadImage(ByteSpan image, Pos n_tokens) { return LoadImageAt(image, 0, n_tokens); }

  // Images as arrays. The layout is found on first use and lives as long as the context;
  // kUnsupported, by name, for caches that this version cannot read as arrays: their images can
  // still be saved and loaded.
  virtual Result<const KvLayout*> Layout() = 0;
  // Views into an image of this context's layout; kCorrupt for bytes that are not one.
  virtual Result<KvView> ViewImage(ByteSpan image) = 0;
  virtual Result<MutableKvView> ViewImage(MutableByteSpan image) = 0;
  // An image of cells at these positions (a list per table, ascending). The bytes of its streams
  // are not initialised: write them all.
  virtual Result<ImageBuffer> FormatImage(const std::vector<std::vector<int32_t>>& positions) = 0;
  // Writes other positions, as many as there are cells, into an image.
  virtual Status StorePositions(MutableByteSpan image,
                                const std::vector<std::vector<int32_t>>& positions) = 0;

  // Moves the live sequence by the engine's own rotation of its keys, the baseline that moved
  // grafts are measured against. kUnsupported where the engine has none.
  virtual Status ShiftByEngine(Pos delta) = 0;

  // Fills scratch rows with random content and removes them again, as other users' traffic would:
  // for proofs. No effect on the live sequence.
  virtual Status RunUnrelatedTraffic(uint64_t seed, size_t n_tokens) = 0;
  // Makes padding rows carry random tokens from `seed` instead of a constant; nullopt: constant.
  virtual void SetPaddingSeed(std::optional<uint64_t> seed) = 0;
  virtual Status SetThreads(uint32_t n_threads) = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;

  // A new, empty context. kInvalidArgument for options that cannot be, with the valid ones;
  // kExhausted when memory does not suffice.
  virtual Result<std::unique_ptr<Context>> NewContext(const ContextOptions& options) = 0;

  // parse_special: "<|im_end|>" in the text becomes that token. False for users' content.
  // add_bos: put the model's beginning-of-sequence token first if the model wants one.
  virtual Result<std::vector<Token>> Tokenize(std::string_view text, bool add_bos,
                                              bool parse_special) const = 0;
  // Text of one token; special tokens as "" unless `special`. May be a part of a UTF-8 character.
  virtual std::string TokenText(Token token, bool special) const = 0;
  virtual bool IsEndOfGeneration(Token token) const = 0;

  // The model's chat template applied; kUnsupported when the model has none that is known.
  virtual Result<std::string> ApplyChatTemplate(std::span<const ChatMessage> messages,
                                                bool add_assistant) const = 0;

  // Pooled, L2-normalised embedding; kUnsupported unless info().has_pooling.
  virtual Result<std::vector<float>> Embed(std::string_view text) = 0;
};

}  // namespace kvgraft::engine
