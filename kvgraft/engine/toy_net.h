// The arithmetic of ToyEngine: weights and the forward pass of one token over a sequence of cells.
// Every sum runs in a fixed order over the inputs, so a row's result depends on nothing but its
// token, its position, the cells below it and the Kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kvgraft/engine/engine.h"

namespace kvgraft::engine::toy {

inline constexpr uint32_t kLayers = 2;
inline constexpr uint32_t kHeads = 4;
inline constexpr uint32_t kKvHeads = 2;
inline constexpr uint32_t kHeadDim = 8;
inline constexpr uint32_t kEmbd = kHeads * kHeadDim;     // 32
inline constexpr uint32_t kKvDim = kKvHeads * kHeadDim;  // 16
inline constexpr uint32_t kFfn = 64;
inline constexpr uint32_t kVocab = 261;

// Stands for the kernels that an engine picks for a batch: another value gives results that differ
// by rounding alone.
struct Kernel {
  uint32_t rotation = 0;        // input at which every matrix product starts to sum, < kEmbd
  bool online_softmax = false;  // one pass with a running maximum, as flash attention does
};

// K and V of a sequence: cell i is position i. Cells above those in use hold anything.
struct Cells {
  struct Layer {
    std::vector<float> k, v;  // [cells][kv_heads][head_dim], keys rotated
  };
  std::array<Layer, kLayers> layers;
  void Reserve(size_t n_cells);  // at least this many cells
};

struct Rope {
  float freq_base = 10000.0f;
  float freq_scale = 1.0f;
};

// Deterministic 64-bit mixing (the SplitMix64 finaliser): weights and scratch tokens come from it.
uint64_t Mix(uint64_t x);

class Net {
 public:
  explicit Net(uint64_t seed);

  // Computes `token` at `pos`: writes its K and V into the cell and attends over the cells
  // max(from, pos - window + 1) .. pos (window 0: from `from`). hidden: [kEmbd], after the last
  // norm.
  void Forward(Token token, Pos pos, Pos from, const Kernel& kernel, const Rope& rope,
               uint32_t window, Cells& cells, float* hidden) const;
  // out: [kVocab]
  void Logits(const float* hidden, const Kernel& kernel, float* out) const;

  // SHA-256 over all weights, little-endian F32.
  const std::string& sha256() const { return sha256_; }
  uint64_t n_params() const;

 private:
  struct Layer {
    std::vector<float> attn_norm, ffn_norm;  // [embd]
    std::vector<float> wq, wo;               // [embd in][embd out]
    std::vector<float> wk, wv;               // [embd in][kv_dim out]
    std::vector<float> w_gate, w_up;         // [embd in][ffn out]
    std::vector<float> w_down;               // [ffn in][embd out]
  };
  template <typename F>
  void EachTensor(F&& f) const;

  std::vector<float> embed_;  // [vocab][embd]
  std::array<Layer, kLayers> layers_;
  std::vector<float> out_norm_;  // [embd]
  std::vector<float> w_out_;     // [embd in][vocab out]
  std::vector<float> prior_;     // [vocab], added to the logits
  std::string sha256_;
};

}  // namespace kvgraft::engine::toy
