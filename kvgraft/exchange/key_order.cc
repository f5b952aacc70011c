#include "kvgraft/exchange/key_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace kvgraft::exchange {
namespace {

// convert_hf_to_gguf.py: the classes that permute, by the architecture that they write.
constexpr std::string_view kPermuted[] = {
    "llama",     "llama-embed", "deci",    "baichuan", "internlm2", "minicpm",
    "xverse",    "olmo",        "arctic",  "deepseek", "granite",   "granitemoe",
    "chameleon", "bailingmoe",  "smollm3", "arcee",    "mistral3",  "llada"};

}  // namespace

bool PermutedByConverter(std::string_view architecture) {
  return std::find(std::begin(kPermuted), std::end(kPermuted), architecture) != std::end(kPermuted);
}

KeyOrder OrderFor(const KvLayout& layout, const StreamSpec& stream, std::string_view architecture) {
  if (stream.kind != StreamKind::kKey || !PermutedByConverter(architecture)) return {};
  if (stream.rope < 0) return {.offset = 0, .n = stream.head_dim / 2 * 2};
  const RopeSpec& rope = layout.ropes[static_cast<size_t>(stream.rope)];
  if (rope.pairing != RopePairing::kInterleaved) return {};
  return {.offset = rope.offset, .n = rope.n_rot};
}

std::vector<uint32_t> PlacesInFile(const KeyOrder& order, uint32_t head_dim) {
  std::vector<uint32_t> places(head_dim);
  std::iota(places.begin(), places.end(), 0u);
  for (uint32_t j = 0; j < order.n / 2; ++j) {
    places[order.offset + 2 * j] = order.offset + j;
    places[order.offset + 2 * j + 1] = order.offset + order.n / 2 + j;
  }
  return places;
}

}  // namespace kvgraft::exchange
