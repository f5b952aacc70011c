// A tiny deterministic transformer with the whole Engine contract, so that everything above the
// engine is tested in milliseconds and without a model file: byte-level vocabulary, 2 layers, 4
// heads on 2 KV heads, RoPE, F32 state, real causal attention over the state. What differs between
// real kernels (batch rows, threads, cells that a saved state drops) differs here too, in the low
// bits, as ToyOptions asks.
//
// Special tokens: 256 <|bos|>, 257 <|end|> (ends a generation), 258 <|user|>, 259 <|assistant|>,
// 260 <|system|>. Chat template: "<|ROLE|>\nCONTENT<|end|>\n" a message, "<|assistant|>\n" to go
// on.
#pragma once

#include <cstdint>
#include <memory>

#include "kvgraft/engine/engine.h"

namespace kvgraft::engine {

struct ToyOptions {
  uint64_t weight_seed = 1;  // another seed: another model, with another identity
  std::string name = "toy";
  // > 0: attention over this many tokens, and state_alignment 64. Going on after an image that does
  // not end at a multiple of 64 tokens, or without swa_full, gives other low bits, as it does with
  // the real engine, whose restored cells have moved; cutting further back than the restored window
  // reaches is kUnsupported.
  uint32_t sliding_window = 0;
  // Batches whose row count is not a multiple of this get slightly different bits, as real
  // kernels do: what the padding rule and the self-test are there for. 1: always invariant.
  // 0: never invariant, whatever the padding (every batch depends on its own row count). With
  // attention on, a batch of one row that is not such a multiple depends on the threads as well.
  uint32_t kernel_quantum = 1;
  std::string build = "toy-1";   // identity build field, for "exact-build-differs" tests
  bool fail_load_image = false;  // the engine fails late in LoadImage, as real ones do
  // > 0: the batch in which a context's count of decoded tokens passes this fails with kInternal;
  // the count then starts again, so that going on afterwards can be tested.
  uint32_t fail_decode_after = 0;
  std::string tokenizer = "bytes";  // identity field
  bool pooled = false;              // Embed works: mean of the last hidden states
  bool chat_template = true;        // false: a model without one
};

inline constexpr Token kToyBos = 256;
inline constexpr Token kToyEnd = 257;
inline constexpr Token kToyUser = 258;
inline constexpr Token kToyAssistant = 259;
inline constexpr Token kToySystem = 260;

std::unique_ptr<Model> NewToyModel(const ToyOptions& options = {});

}  // namespace kvgraft::engine
