#include "kvgraft/engine/toy_image.h"

#include <bit>
#include <string>

namespace kvgraft::engine::toy {
namespace {

constexpr uint32_t kMagic = 0x53594f54;  // "TOYS"
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 24;
constexpr size_t kTokenBytes = 4 + kLayers * 2 * kKvDim * 4;

void PutU32(MutableByteSpan out, size_t at, uint32_t v) {
  for (int i = 0; i < 4; ++i) out[at + i] = static_cast<uint8_t>(v >> (8 * i));
}

uint32_t GetU32(ByteSpan in, size_t at) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= uint32_t{in[at + i]} << (8 * i);
  return v;
}

// Calls f(float in the cells, its offset in the image) for every K and V value.
template <typename CellsT, typename F>
void EachValue(CellsT& cells, size_t n, ValueLayout layout, F&& f) {
  size_t at = kHeaderBytes + 4 * n;
  for (auto& layer : cells.layers) {
    for (size_t i = 0; i < n * kKvDim; ++i) f(layer.k[i], at + 4 * i);
    at += 4 * n * kKvDim;
    for (size_t cell = 0; cell < n; ++cell) {
      for (size_t d = 0; d < kKvDim; ++d) {
        const size_t i = layout == ValueLayout::kRows ? cell * kKvDim + d : d * n + cell;
        f(layer.v[cell * kKvDim + d], at + 4 * i);
      }
    }
    at += 4 * n * kKvDim;
  }
}

Status Bad(const char* field, uint64_t expected, uint64_t got) {
  return Status(Code::kCorrupt, std::string("toy image: ") + field + " is " + std::to_string(got) +
                                    ", expected " + std::to_string(expected));
}

}  // namespace

size_t ImageBytes(size_t n_tokens) { return kHeaderBytes + n_tokens * kTokenBytes; }

void WriteImage(const Cells& cells, size_t n_tokens, ValueLayout layout, MutableByteSpan out) {
  PutU32(out, 0, kMagic);
  PutU32(out, 4, kVersion);
  PutU32(out, 8, static_cast<uint32_t>(n_tokens));
  PutU32(out, 12, kLayers);
  PutU32(out, 16, kKvDim);
  PutU32(out, 20, static_cast<uint32_t>(layout));
  for (size_t i = 0; i < n_tokens; ++i) PutU32(out, kHeaderBytes + 4 * i, static_cast<uint32_t>(i));
  EachValue(cells, n_tokens, layout,
            [&](float v, size_t at) { PutU32(out, at, std::bit_cast<uint32_t>(v)); });
}

Status CheckImage(ByteSpan image, size_t n_tokens, ValueLayout layout) {
  if (image.size() < kHeaderBytes)
    return Status(Code::kCorrupt, "toy image: " + std::to_string(image.size()) +
                                      " bytes, shorter than its header of 24");
  if (GetU32(image, 0) != kMagic) return Bad("magic", kMagic, GetU32(image, 0));
  if (GetU32(image, 4) != kVersion) return Bad("version", kVersion, GetU32(image, 4));
  if (GetU32(image, 8) != n_tokens) return Bad("n_tokens", n_tokens, GetU32(image, 8));
  if (GetU32(image, 12) != kLayers) return Bad("n_layers", kLayers, GetU32(image, 12));
  if (GetU32(image, 16) != kKvDim) return Bad("kv_dim", kKvDim, GetU32(image, 16));
  const uint32_t want = static_cast<uint32_t>(layout);
  if (GetU32(image, 20) != want) return Bad("v layout", want, GetU32(image, 20));
  if (image.size() != ImageBytes(n_tokens)) return Bad("size", ImageBytes(n_tokens), image.size());
  for (size_t i = 0; i < n_tokens; ++i) {
    const uint32_t pos = GetU32(image, kHeaderBytes + 4 * i);
    if (pos != i) return Bad("a position", i, pos);
  }
  return Status::Ok();
}

void ReadImage(ByteSpan image, size_t n_tokens, ValueLayout layout, Cells& cells) {
  cells.Reserve(n_tokens);
  EachValue(cells, n_tokens, layout,
            [&](float& v, size_t at) { v = std::bit_cast<float>(GetU32(image, at)); });
}

}  // namespace kvgraft::engine::toy
