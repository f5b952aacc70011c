// The context of ToyEngine: one live sequence, a scratch sequence for padding and other traffic.
#pragma once

#include <memory>

#include "kvgraft/engine/toy_engine.h"
#include "kvgraft/engine/toy_image.h"
#include "kvgraft/engine/toy_net.h"

namespace kvgraft::engine::toy {

class ToyContext : public Context {
 public:
  // `options` as resolved and checked by ResolveOptions.
  ToyContext(std::shared_ptr<const Net> net, const ToyOptions& toy, const ContextOptions& options);

  const StateIdentity& identity() const override { return identity_; }
  const ContextOptions& options() const override { return options_; }
  uint32_t n_ctx() const override { return options_.n_ctx; }
  Pos n_past() const override { return n_past_; }
  Pos first_pos() const override { return first_pos_; }

  Status StartAt(Pos first) override;
  Status Truncate(Pos n) override;
  Status Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits, Logits* logits,
                const Progress& progress) override;

  Result<size_t> ImageBytes() override;
  Status SaveImage(MutableByteSpan out) override;
  Status CheckImageAt(ByteSpan image, Pos first, Pos end) const override;
  Status LoadImageAt(ByteSpan image, Pos first, Pos end) override;
  Result<const KvLayout*> Layout() override { return &streams_; }
  Result<KvView> ViewImage(ByteSpan image) override {
    return View<const uint8_t>(image, streams_, layout());
  }
  Result<MutableKvView> ViewImage(MutableByteSpan image) override {
    return View<uint8_t>(image, streams_, layout());
  }
  Result<ImageBuffer> FormatImage(const std::vector<std::vector<int32_t>>& positions) override {
    return toy::FormatImage(positions, layout());
  }
  Status StorePositions(MutableByteSpan image,
                        const std::vector<std::vector<int32_t>>& positions) override {
    return toy::StorePositions(image, layout(), positions);
  }

  Status ShiftByEngine(Pos delta) override;
  Status RunUnrelatedTraffic(uint64_t seed, size_t n_tokens) override;
  void SetPaddingSeed(std::optional<uint64_t> seed) override { padding_seed_ = seed; }
  Status SetThreads(uint32_t n_threads) override;

 private:
  Kernel KernelFor(size_t n_rows) const;
  Status CheckDecode(std::span<const Token> tokens, size_t n_logits, const Logits* logits) const;
  // One batch: the tokens and n_padding rows of a scratch sequence. out: where the logits of the
  // last n_logits tokens go.
  void DecodeBatch(std::span<const Token> tokens, size_t n_padding, size_t n_logits, float* out);
  void DecodeScratch(size_t n_rows, std::optional<uint64_t> seed, const Kernel& kernel);
  size_t n_held() const { return static_cast<size_t>(n_past_ - first_pos_); }
  Rope rope() const { return {options_.rope_freq_base, options_.rope_freq_scale}; }
  ValueLayout layout() const {
    return options_.attention == Attention::kOn ? ValueLayout::kRows : ValueLayout::kColumns;
  }

  std::shared_ptr<const Net> net_;
  ToyOptions toy_;
  ContextOptions options_;
  StateIdentity identity_;
  KvLayout streams_;
  Cells live_, scratch_;
  Pos first_pos_ = 0, n_past_ = 0;
  Pos window_first_ = 0;      // first position that a restored sliding window holds
  bool cells_moved_ = false;  // restored so that a window's cells are not where they were
  uint64_t n_decoded_ = 0;    // towards fail_decode_after
  uint64_t n_padded_ = 0;     // padding batches so far: each gets other random content
  std::optional<uint64_t> padding_seed_;
};

// Fills in defaults; kInvalidArgument, with what is valid, for options that cannot be.
Result<ContextOptions> ResolveOptions(ContextOptions options, uint32_t n_ctx_train);

}  // namespace kvgraft::engine::toy
