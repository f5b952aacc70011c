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

// Calls f(float in the cells, its offset in the image) for every K and V value of the cells first
// .. first+n-1.
template <typename CellsT, typename F>
void EachValue(CellsT& cells, size_t first, size_t n, ValueLayout layout, F&& f) {
  size_t at = kHeaderBytes + 4 * n;
  for (auto& layer : cells.layers) {
    for (size_t i = 0; i < n * kKvDim; ++i) f(layer.k[first * kKvDim + i], at + 4 * i);
    at += 4 * n * kKvDim;
    for (size_t cell = 0; cell < n; ++cell) {
      for (size_t d = 0; d < kKvDim; ++d) {
        const size_t i = layout == ValueLayout::kRows ? cell * kKvDim + d : d * n + cell;
        f(layer.v[(first + cell) * kKvDim + d], at + 4 * i);
      }
    }
    at += 4 * n * kKvDim;
  }
}

Status Bad(const char* field, uint64_t expected, uint64_t got) {
  return Status(Code::kCorrupt, std::string("toy image: ") + field + " is " + std::to_string(got) +
                                    ", expected " + std::to_string(expected));
}

// Everything but the positions. n_tokens comes out of the image.
Status CheckHeader(ByteSpan image, ValueLayout layout, size_t* n_tokens) {
  if (image.size() < kHeaderBytes)
    return Status(Code::kCorrupt, "toy image: " + std::to_string(image.size()) +
                                      " bytes, shorter than its header of 24");
  if (GetU32(image, 0) != kMagic) return Bad("magic", kMagic, GetU32(image, 0));
  if (GetU32(image, 4) != kVersion) return Bad("version", kVersion, GetU32(image, 4));
  *n_tokens = GetU32(image, 8);
  if (GetU32(image, 12) != kLayers) return Bad("n_layers", kLayers, GetU32(image, 12));
  if (GetU32(image, 16) != kKvDim) return Bad("kv_dim", kKvDim, GetU32(image, 16));
  const uint32_t want = static_cast<uint32_t>(layout);
  if (GetU32(image, 20) != want) return Bad("v layout", want, GetU32(image, 20));
  if (image.size() != ImageBytes(*n_tokens))
    return Bad("size", ImageBytes(*n_tokens), image.size());
  return Status::Ok();
}

void PutHeader(size_t n_tokens, ValueLayout layout, MutableByteSpan out) {
  PutU32(out, 0, kMagic);
  PutU32(out, 4, kVersion);
  PutU32(out, 8, static_cast<uint32_t>(n_tokens));
  PutU32(out, 12, kLayers);
  PutU32(out, 16, kKvDim);
  PutU32(out, 20, static_cast<uint32_t>(layout));
}

void PutPositions(const std::vector<int32_t>& positions, MutableByteSpan out) {
  for (size_t i = 0; i < positions.size(); ++i)
    PutU32(out, kHeaderBytes + 4 * i, static_cast<uint32_t>(positions[i]));
}

Status CheckPositions(const std::vector<std::vector<int32_t>>& positions) {
  if (positions.size() != 1)
    return Status(Code::kInvalidArgument, "toy image: " + std::to_string(positions.size()) +
                                              " tables of positions, expected 1");
  for (size_t i = 0; i < positions[0].size(); ++i) {
    if (positions[0][i] < 0 || (i > 0 && positions[0][i] <= positions[0][i - 1]))
      return Status(Code::kInvalidArgument, "toy image: position " +
                                                std::to_string(positions[0][i]) + " of cell " +
                                                std::to_string(i) + "; expected ascending ones");
  }
  return Status::Ok();
}

}  // namespace

size_t ImageBytes(size_t n_tokens) { return kHeaderBytes + n_tokens * kTokenBytes; }

void WriteImage(const Cells& cells, size_t first, size_t n_tokens, ValueLayout layout,
                MutableByteSpan out) {
  PutHeader(n_tokens, layout, out);
  for (size_t i = 0; i < n_tokens; ++i)
    PutU32(out, kHeaderBytes + 4 * i, static_cast<uint32_t>(first + i));
  EachValue(cells, first, n_tokens, layout,
            [&](float v, size_t at) { PutU32(out, at, std::bit_cast<uint32_t>(v)); });
}

Status CheckImage(ByteSpan image, size_t first, size_t n_tokens, ValueLayout layout) {
  size_t n = 0;
  KVG_RETURN(CheckHeader(image, layout, &n));
  if (n != n_tokens) return Bad("n_tokens", n_tokens, n);
  for (size_t i = 0; i < n_tokens; ++i) {
    const uint32_t pos = GetU32(image, kHeaderBytes + 4 * i);
    if (pos != first + i) return Bad("a position", first + i, pos);
  }
  return Status::Ok();
}

void ReadImage(ByteSpan image, size_t first, size_t n_tokens, ValueLayout layout, Cells& cells) {
  cells.Reserve(first + n_tokens);
  EachValue(cells, first, n_tokens, layout,
            [&](float& v, size_t at) { v = std::bit_cast<float>(GetU32(image, at)); });
}

KvLayout MakeLayout(const RopeSpec& rope, ValueLayout layout) {
  KvLayout out;
  out.ropes = {rope};
  for (uint32_t i = 0; i < kLayers; ++i) {
    StreamSpec s;
    s.layer = i;
    s.n_heads = kKvHeads;
    s.head_dim = kHeadDim;
    s.type = DType::kF32;
    s.kind = StreamKind::kKey;
    s.rope = 0;
    out.streams.push_back(s);
    s.kind = StreamKind::kValue;
    s.rope = -1;
    s.order = layout == ValueLayout::kRows ? StreamOrder::kRows : StreamOrder::kColumns;
    out.streams.push_back(s);
  }
  return out;
}

template <typename Byte>
Result<BasicKvView<Byte>> View(std::span<Byte> image, const KvLayout& streams, ValueLayout layout) {
  size_t n = 0;
  KVG_RETURN(CheckHeader(image, layout, &n));
  BasicKvView<Byte> view;
  view.layout = &streams;
  std::vector<int32_t>& positions = view.positions.emplace_back(n);
  for (size_t i = 0; i < n; ++i) {
    positions[i] = static_cast<int32_t>(GetU32(image, kHeaderBytes + 4 * i));
    if (positions[i] < 0 || (i > 0 && positions[i] <= positions[i - 1]))
      return Bad("a position", i, static_cast<uint32_t>(positions[i]));
  }
  const size_t bytes = 4 * n * kKvDim;
  for (size_t i = 0; i < streams.streams.size(); ++i)
    view.streams.push_back({image.subspan(kHeaderBytes + 4 * n + i * bytes, bytes), 4 * kKvDim});
  return view;
}
template Result<KvView> View(ByteSpan, const KvLayout&, ValueLayout);
template Result<MutableKvView> View(MutableByteSpan, const KvLayout&, ValueLayout);

Result<ImageBuffer> FormatImage(const std::vector<std::vector<int32_t>>& positions,
                                ValueLayout layout) {
  KVG_RETURN(CheckPositions(positions));
  KVG_ASSIGN(ImageBuffer out, NewImageBuffer(ImageBytes(positions[0].size())));
  PutHeader(positions[0].size(), layout, out);
  PutPositions(positions[0], out);
  return out;
}

Status StorePositions(MutableByteSpan image, ValueLayout layout,
                      const std::vector<std::vector<int32_t>>& positions) {
  size_t n = 0;
  KVG_RETURN(CheckHeader(image, layout, &n));
  KVG_RETURN(CheckPositions(positions));
  if (positions[0].size() != n)
    return Status(Code::kInvalidArgument, "toy image: " + std::to_string(positions[0].size()) +
                                              " positions for " + std::to_string(n) + " cells");
  PutPositions(positions[0], image);
  return Status::Ok();
}

}  // namespace kvgraft::engine::toy
