// In which order the dimensions of a key lie: as the engine rotates them, and as Hugging Face does.
//
// RoPE turns pairs of dimensions, (0, 1), (2, 3) ... or (0, n/2), (1, n/2 + 1) ... Hugging Face's
// `llama` does the latter; the converter of llama.cpp permutes its Q and K weights so that the
// engine can do the former. Keys are then the same numbers in another order within each head.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvgraft/core/kv_state.h"

namespace kvgraft::exchange {

// The dimensions offset .. offset+n-1 of each head are in another order in the file than in the
// engine: dimension offset + 2j of the engine is offset + j in the file, and offset + 2j + 1 is
// offset + n/2 + j. n == 0: the same order.
struct KeyOrder {
  uint32_t offset = 0, n = 0;
  bool operator==(const KeyOrder&) const = default;
};

// Architectures (GGUF names) whose Q and K the converter permutes. Other architectures that the
// engine rotates in interleaved pairs (Cohere, GLM, Llama 4, ERNIE 4.5, DeepSeek 2) are interleaved
// in Hugging Face's code too: their keys keep their order.
bool PermutedByConverter(std::string_view architecture);

// How a stream's heads are written for Hugging Face. Of a partly rotated head only the rotated part
// is permuted; of a key without RoPE (a NoPE layer) in a permuted model all of it, since the
// converter knows no such layers.
KeyOrder OrderFor(const KvLayout& layout, const StreamSpec& stream, std::string_view architecture);

// For each dimension of the engine's head its place in the file's, [head_dim].
std::vector<uint32_t> PlacesInFile(const KeyOrder& order, uint32_t head_dim);

}  // namespace kvgraft::exchange
