// A libllama context that keeps one live sequence (id 0) and a scratch sequence (id 1) in one
// unified cache. LlamaContext pads batches with scratch rows, which are removed after each batch,
// so cell i always holds position i and the live sequence never sees them. BlockContext
// (block_context_internal.h) is the same for states that are recurrent.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvgraft/core/random.h"
#include "kvgraft/engine_llama/internal.h"
#include "kvgraft/engine_llama/planes_internal.h"

namespace kvgraft::engine_llama {

inline constexpr llama_seq_id kLive = 0;
inline constexpr llama_seq_id kScratch = 1;

// Owns a llama_batch of fixed capacity.
class Batch {
 public:
  explicit Batch(uint32_t capacity)
      : batch_(llama_batch_init(static_cast<int32_t>(capacity), 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void Clear() { batch_.n_tokens = 0; }
  void Add(engine::Token token, engine::Pos pos, llama_seq_id seq, bool output) {
    const int32_t i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = pos;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = seq;
    batch_.logits[i] = output ? 1 : 0;
  }
  // Turns further rows, from the end, into outputs until their number is a multiple of `quantum`.
  void PadOutputs(uint32_t quantum) {
    uint32_t n = 0;
    for (int32_t i = 0; i < batch_.n_tokens; ++i) n += batch_.logits[i] != 0;
    for (int32_t i = batch_.n_tokens - 1; i >= 0 && n % quantum != 0; --i) {
      if (batch_.logits[i] == 0) batch_.logits[i] = 1, ++n;
    }
  }
  const llama_batch& get() const { return batch_; }

 private:
  llama_batch batch_;
};

class LlamaContext : public engine::Context {
 public:
  LlamaContext(std::shared_ptr<ModelState> state, engine::ContextOptions options,
               ContextPtr context);

  // Runs one padded batch, learns the state layout from it, and empties the context again.
  Status Warm();

  const StateIdentity& identity() const override { return identity_; }
  const engine::ContextOptions& options() const override { return options_; }
  uint32_t n_ctx() const override { return options_.n_ctx; }
  engine::Pos n_past() const override { return n_past_; }
  engine::Pos first_pos() const override { return first_pos_; }

  Status StartAt(engine::Pos first) override;
  Status Truncate(engine::Pos n) override;
  Status Decode(std::span<const engine::Token> tokens, engine::Schedule schedule, size_t n_logits,
                engine::Logits* logits, const engine::Progress& progress) override;
  Result<size_t> ImageBytes() override;
  Status SaveImage(MutableByteSpan out) override;
  Status CheckImageAt(ByteSpan image, engine::Pos first, engine::Pos end) const override;
  Status LoadImageAt(ByteSpan image, engine::Pos first, engine::Pos end) override;
  Result<const KvLayout*> Layout() override;
  Result<KvView> ViewImage(ByteSpan image) override;
  Result<MutableKvView> ViewImage(MutableByteSpan image) override;
  Result<ImageBuffer> FormatImage(const std::vector<std::vector<int32_t>>& positions) override;
  Status StorePositions(MutableByteSpan image,
                        const std::vector<std::vector<int32_t>>& positions) override;
  Status ShiftByEngine(engine::Pos delta) override;
  Status RunUnrelatedTraffic(uint64_t seed, size_t n_tokens) override;
  void SetPaddingSeed(std::optional<uint64_t> seed) override {
    padding_ = seed ? std::optional<Random>(*seed) : std::nullopt;
  }
  Status SetThreads(uint32_t n_threads) override;

 protected:
  // While it lives, the engine polls `progress`, up to 10 times a second, with the tokens done so
  // far, and gives up when that returns false: a batch of seconds can be interrupted.
  class Polling {
   public:
    Polling(LlamaContext* context, const engine::Progress& progress, size_t total);
    ~Polling();
    Polling(const Polling&) = delete;
    Polling& operator=(const Polling&) = delete;
    // kCancelled when the caller wants no more.
    Status At(size_t done);

   private:
    LlamaContext* context_;
  };

  // Refuses tokens that do not fit or are none of the vocabulary's; sizes `logits`.
  Status CheckDecode(std::span<const engine::Token> tokens, size_t n_logits,
                     engine::Logits* logits) const;
  Status CheckCut(engine::Pos n) const;
  // Decodes batch_ and removes the scratch rows; after an error the live ones from n_past_ on too.
  Status RunBatch();
  // Logits of row `row` of the batch that ran last to row `i` of `logits`.
  Status CopyLogits(size_t row, size_t i, engine::Logits* logits) const;
  engine::Token PaddingToken(uint32_t i);

  std::shared_ptr<ModelState> state_;
  engine::ContextOptions options_;
  ContextPtr context_;
  llama_memory_t memory_;
  Batch batch_;
  engine::Pos first_pos_ = 0, n_past_ = 0;

 private:
  static bool OnAbortCheck(void* self) { return static_cast<LlamaContext*>(self)->ShouldAbort(); }
  bool ShouldAbort();
  // Decodes one physical batch; outputs for rows from `first_output` on.
  Status DecodeChunk(std::span<const engine::Token> tokens, size_t first_output,
                     engine::Schedule schedule);

  StateIdentity identity_;
  std::optional<ImageLayout> layout_;
  Status layout_status_;
  std::optional<Planes> planes_;  // see Layout()
  Status planes_status_;
  std::optional<Random> padding_;               // unset: constant padding
  const engine::Progress* progress_ = nullptr;  // of the Polling that lives
  size_t progress_done_ = 0, progress_total_ = 0;
  std::chrono::steady_clock::time_point last_poll_;
};

}  // namespace kvgraft::engine_llama
