#include "kvgraft/math/cells.h"

#include <ggml.h>

#include <cmath>
#include <cstring>
#include <string>

#include "kvgraft/math/half.h"

namespace kvgraft::math {
namespace {

Status CheckRange(size_t n_streams, size_t n_cells, size_t stream, size_t first, size_t count,
                  size_t width, size_t n_values) {
  if (stream >= n_streams || first > n_cells || count > n_cells - first ||
      n_values != count * width) {
    return Status(Code::kInvalidArgument, "planes: cells " + std::to_string(first) + " to " +
                                              std::to_string(first + count) + " of " +
                                              std::to_string(n_cells) + " in stream " +
                                              std::to_string(stream) + " as " +
                                              std::to_string(n_values) + " numbers");
  }
  return Status::Ok();
}

// By the tensor library's reference conversions: they need no processor backend.
Status Decode(DType type, const uint8_t* bytes, size_t n, float* out) {
  const auto t = static_cast<ggml_type>(type);
  if (type == DType::kF32) {
    std::memcpy(out, bytes, n * sizeof(float));
  } else if (type == DType::kF16) {
    HalfToFloat(reinterpret_cast<const uint16_t*>(bytes), n, out);
  } else {
    KVG_RETURN(BlockOf(type).status());
    ggml_get_type_traits(t)->to_float(bytes, out, static_cast<int64_t>(n));
  }
  return Status::Ok();
}

Status Encode(DType type, const float* in, size_t n, uint8_t* bytes) {
  const auto t = static_cast<ggml_type>(type);
  if (type == DType::kF32) {
    std::memcpy(bytes, in, n * sizeof(float));
  } else if (type == DType::kF16) {
    FloatToHalf(in, n, reinterpret_cast<uint16_t*>(bytes));
  } else {
    KVG_RETURN(BlockOf(type).status());
    ggml_get_type_traits(t)->from_float_ref(in, bytes, static_cast<int64_t>(n));
  }
  return Status::Ok();
}

}  // namespace

void Hadamard(std::span<float> values, uint32_t block) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (size_t at = 0; at < values.size(); at += block) {
    float* x = values.data() + at;
    for (uint32_t step = 1; step < block; step *= 2) {
      for (uint32_t i = 0; i < block; i += 2 * step) {
        for (uint32_t j = i; j < i + step; ++j) {
          const float a = x[j], b = x[j + step];
          x[j] = a + b;
          x[j + step] = a - b;
        }
      }
    }
    for (uint32_t i = 0; i < block; ++i) x[i] *= scale;
  }
}

Status ReadCells(const KvView& view, size_t stream, size_t first, size_t count,
                 std::span<float> out) {
  const size_t n_streams = view.streams.size();
  const size_t n_cells = stream < n_streams ? view.n_cells(stream) : 0;
  const size_t width = stream < n_streams ? view.layout->streams[stream].width() : 0;
  KVG_RETURN(CheckRange(n_streams, n_cells, stream, first, count, width, out.size()));
  const StreamSpec& spec = view.layout->streams[stream];
  const StreamBytes<const uint8_t>& bytes = view.streams[stream];
  if (spec.order == StreamOrder::kRows) {
    for (size_t i = 0; i < count; ++i) {
      KVG_RETURN(Decode(spec.type, bytes.data.data() + (first + i) * bytes.stride, width,
                        out.data() + i * width));
    }
  } else {
    KVG_ASSIGN(const BlockSize block, BlockOf(spec.type));
    std::vector<float> column(count);
    for (size_t e = 0; e < width; ++e) {
      KVG_RETURN(Decode(spec.type, bytes.data.data() + (e * n_cells + first) * block.bytes, count,
                        column.data()));
      for (size_t i = 0; i < count; ++i) out[i * width + e] = column[i];
    }
  }
  if (spec.hadamard > 0) Hadamard(out, spec.hadamard);
  return Status::Ok();
}

Status WriteCells(const MutableKvView& view, size_t stream, size_t first, size_t count,
                  std::span<const float> in) {
  const size_t n_streams = view.streams.size();
  const size_t n_cells = stream < n_streams ? view.n_cells(stream) : 0;
  const size_t width = stream < n_streams ? view.layout->streams[stream].width() : 0;
  KVG_RETURN(CheckRange(n_streams, n_cells, stream, first, count, width, in.size()));
  const StreamSpec& spec = view.layout->streams[stream];
  const StreamBytes<uint8_t>& bytes = view.streams[stream];
  std::vector<float> rotated;
  if (spec.hadamard > 0) {
    rotated.assign(in.begin(), in.end());
    Hadamard(rotated, spec.hadamard);
    in = rotated;
  }
  if (spec.order == StreamOrder::kRows) {
    for (size_t i = 0; i < count; ++i) {
      KVG_RETURN(Encode(spec.type, in.data() + i * width, width,
                        bytes.data.data() + (first + i) * bytes.stride));
    }
    return Status::Ok();
  }
  KVG_ASSIGN(const BlockSize block, BlockOf(spec.type));
  std::vector<float> column(count);
  for (size_t e = 0; e < width; ++e) {
    for (size_t i = 0; i < count; ++i) column[i] = in[i * width + e];
    KVG_RETURN(Encode(spec.type, column.data(), count,
                      bytes.data.data() + (e * n_cells + first) * block.bytes));
  }
  return Status::Ok();
}

KvView Readable(const MutableKvView& view) {
  KvView out;
  out.layout = view.layout;
  out.positions = view.positions;
  for (const StreamBytes<uint8_t>& s : view.streams) out.streams.push_back({s.data, s.stride});
  return out;
}

}  // namespace kvgraft::math
