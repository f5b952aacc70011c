#include "kvgraft/exchange/stream_tensor.h"

#include <algorithm>
#include <cstring>

#include "kvgraft/math/cells.h"

namespace kvgraft::exchange {
namespace {

// Cells that are handled together: their elements stay in the processor's cache while columns are
// turned to rows.
constexpr size_t kBlockCells = 64;

bool IsPlain(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

size_t PlainBytes(DType type) { return type == DType::kF32 ? 4 : 2; }

// Calls move(bytes in the image, bytes in the tensor) for every element of a stream, block by block
// of cells.
template <size_t kBytes, typename Byte, typename Other, typename Move>
void EachElement(const StreamSpec& spec, const StreamBytes<Byte>& image, size_t n_cells,
                 const std::vector<uint32_t>& places, Other* tensor, Move move) {
  const size_t dim = spec.head_dim;
  const auto to = [&](size_t head, size_t cell, size_t d) {
    return tensor + ((head * n_cells + cell) * dim + places[d]) * kBytes;
  };
  for (size_t first = 0; first < n_cells; first += kBlockCells) {
    const size_t last = std::min(n_cells, first + kBlockCells);
    for (size_t head = 0; head < spec.n_heads; ++head) {
      if (spec.order == StreamOrder::kRows) {
        for (size_t cell = first; cell < last; ++cell) {
          Byte* from = image.data.data() + cell * image.stride + head * dim * kBytes;
          for (size_t d = 0; d < dim; ++d) move(from + d * kBytes, to(head, cell, d));
        }
      } else {
        for (size_t d = 0; d < dim; ++d) {
          Byte* from = image.data.data() + (head * dim + d) * n_cells * kBytes;
          for (size_t cell = first; cell < last; ++cell) {
            move(from + cell * kBytes, to(head, cell, d));
          }
        }
      }
    }
  }
}

// A quantised stream: blocks of cells as F32 [cell][head][dim], scattered to [head][cell][dim].
template <typename F>
Status EachBlock(size_t n_cells, F f) {
  for (size_t first = 0; first < n_cells; first += kBlockCells) {
    KVG_RETURN(f(first, std::min(n_cells - first, kBlockCells)));
  }
  return Status::Ok();
}

template <typename F>
void EachPlace(const StreamSpec& spec, size_t n_cells, size_t first, size_t count,
               const std::vector<uint32_t>& places, F f) {
  for (size_t i = 0; i < count; ++i) {
    for (size_t head = 0; head < spec.n_heads; ++head) {
      const size_t row = (i * spec.n_heads + head) * spec.head_dim;
      const size_t at = (head * n_cells + first + i) * spec.head_dim;
      for (size_t d = 0; d < spec.head_dim; ++d) f(row + d, (at + places[d]) * sizeof(float));
    }
  }
}

Status CheckSize(const StreamSpec& spec, size_t n_cells, size_t bytes) {
  KVG_ASSIGN(const uint64_t want, TensorBytes(TensorFor(spec, n_cells)));
  if (want == bytes) return Status::Ok();
  return Status(Code::kInvalidArgument, TensorName(spec) + ": " + std::to_string(bytes) +
                                            " bytes, expected " + std::to_string(want));
}

}  // namespace

std::string TensorName(const StreamSpec& stream) {
  return "layers." + std::to_string(stream.layer) + "." + StreamKindName(stream.kind);
}

std::string PositionsName(TableKind table) {
  if (table == TableKind::kAll) return "positions";
  return std::string("positions.") + TableKindName(table);
}

Tensor TensorFor(const StreamSpec& stream, uint64_t n_cells) {
  Tensor tensor;
  tensor.name = TensorName(stream);
  tensor.dtype = stream.type == DType::kF16 ? "F16" : stream.type == DType::kBF16 ? "BF16" : "F32";
  tensor.shape = {stream.n_heads, n_cells, stream.head_dim};
  return tensor;
}

Status ReadTensor(const KvView& view, size_t stream, const KeyOrder& order, MutableByteSpan out) {
  const StreamSpec& spec = view.layout->streams[stream];
  const size_t n_cells = view.n_cells(stream);
  KVG_RETURN(CheckSize(spec, n_cells, out.size()));
  const std::vector<uint32_t> places = PlacesInFile(order, spec.head_dim);
  if (IsPlain(spec.type) && spec.hadamard == 0) {
    const StreamBytes<const uint8_t>& image = view.streams[stream];
    if (PlainBytes(spec.type) == 4) {
      EachElement<4>(spec, image, n_cells, places, out.data(),
                     [](const uint8_t* from, uint8_t* to) { std::memcpy(to, from, 4); });
    } else {
      EachElement<2>(spec, image, n_cells, places, out.data(),
                     [](const uint8_t* from, uint8_t* to) { std::memcpy(to, from, 2); });
    }
    return Status::Ok();
  }
  std::vector<float> cells;
  return EachBlock(n_cells, [&](size_t first, size_t count) {
    cells.resize(count * spec.width());
    KVG_RETURN(math::ReadCells(view, stream, first, count, cells));
    EachPlace(spec, n_cells, first, count, places, [&](size_t number, size_t at) {
      std::memcpy(out.data() + at, &cells[number], sizeof(float));
    });
    return Status::Ok();
  });
}

Status WriteTensor(const MutableKvView& view, size_t stream, const KeyOrder& order, ByteSpan in) {
  const StreamSpec& spec = view.layout->streams[stream];
  const size_t n_cells = view.n_cells(stream);
  KVG_RETURN(CheckSize(spec, n_cells, in.size()));
  const std::vector<uint32_t> places = PlacesInFile(order, spec.head_dim);
  if (IsPlain(spec.type) && spec.hadamard == 0) {
    const StreamBytes<uint8_t>& image = view.streams[stream];
    if (PlainBytes(spec.type) == 4) {
      EachElement<4>(spec, image, n_cells, places, in.data(),
                     [](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 4); });
    } else {
      EachElement<2>(spec, image, n_cells, places, in.data(),
                     [](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); });
    }
    return Status::Ok();
  }
  std::vector<float> cells;
  return EachBlock(n_cells, [&](size_t first, size_t count) {
    cells.resize(count * spec.width());
    EachPlace(spec, n_cells, first, count, places, [&](size_t number, size_t at) {
      std::memcpy(&cells[number], in.data() + at, sizeof(float));
    });
    return math::WriteCells(view, stream, first, count, cells);
  });
}

bool AllFinite(std::string_view dtype, ByteSpan bytes) {
  // The exponent of a number that is not finite has every bit set.
  if (dtype == "F32") {
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      uint32_t bits = 0;
      std::memcpy(&bits, bytes.data() + i, 4);
      if ((bits & 0x7f800000u) == 0x7f800000u) return false;
    }
    return true;
  }
  const uint16_t exponent = dtype == "F16" ? 0x7c00u : 0x7f80u;
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i, 2);
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

}  // namespace kvgraft::exchange
