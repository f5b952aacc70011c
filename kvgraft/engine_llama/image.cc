#include "kvgraft/engine_llama/image.h"

#include <algorithm>
#include <string>

namespace kvgraft::engine_llama {
namespace {

constexpr uint32_t kMagic = kImageMagic;
constexpr uint32_t kMaxLayers = 4096;

Status Corrupt(const std::string& what, uint64_t got, uint64_t expected, size_t offset) {
  return Status(Code::kCorrupt, "state image: " + what + " is " + std::to_string(got) +
                                    ", expected " + std::to_string(expected) + ", at byte " +
                                    std::to_string(offset));
}

// Reads one entry of the key part or the row-major value part and skips its rows.
Result<LayerLayout> ReadRows(ByteReader& in, uint64_t cells) {
  LayerLayout layer;
  KVG_ASSIGN(layer.type, in.I32());
  KVG_ASSIGN(layer.row_bytes, in.U64());
  if (layer.row_bytes == 0 || layer.row_bytes > in.remaining() / cells) {
    return Corrupt("row size", layer.row_bytes, in.remaining() / cells, in.offset());
  }
  KVG_RETURN(in.Skip(layer.row_bytes * cells));
  return layer;
}

Result<LayerLayout> ReadColumns(ByteReader& in, uint64_t cells) {
  LayerLayout layer;
  KVG_ASSIGN(layer.type, in.I32());
  KVG_ASSIGN(layer.element_bytes, in.U32());
  KVG_ASSIGN(layer.width, in.U32());
  layer.row_bytes = uint64_t{layer.element_bytes} * layer.width;
  if (layer.row_bytes == 0 || layer.row_bytes > in.remaining() / cells) {
    return Corrupt("column size", layer.row_bytes, in.remaining() / cells, in.offset());
  }
  KVG_RETURN(in.Skip(layer.row_bytes * cells));
  return layer;
}

// One cache of one cell; `with_values` says whether a value part follows the keys.
Result<CacheLayout> LearnCache(ByteReader& in, bool with_values) {
  KVG_ASSIGN(uint32_t n_stream, in.U32());
  KVG_ASSIGN(uint32_t cells, in.U32());
  if (n_stream != 1) return Corrupt("stream count", n_stream, 1, in.offset());
  if (cells != 1) return Corrupt("cell count", cells, 1, in.offset());
  KVG_RETURN(in.Skip(12));
  KVG_ASSIGN(uint32_t v_trans, in.U32());
  KVG_ASSIGN(uint32_t n_layer, in.U32());
  if (v_trans > 1) return Corrupt("value layout", v_trans, 1, in.offset());
  if (n_layer > kMaxLayers) return Corrupt("layer count", n_layer, kMaxLayers, in.offset());
  CacheLayout cache;
  cache.v_transposed = v_trans == 1;
  for (uint32_t i = 0; i < n_layer; ++i) {
    KVG_ASSIGN(LayerLayout layer, ReadRows(in, cells));
    cache.keys.push_back(layer);
  }
  for (uint32_t i = 0; with_values && i < n_layer; ++i) {
    KVG_ASSIGN(LayerLayout layer,
               cache.v_transposed ? ReadColumns(in, cells) : ReadRows(in, cells));
    cache.values.push_back(layer);
  }
  return cache;
}

Result<ImageLayout> LearnCaches(ByteSpan image, bool with_values) {
  ByteReader in(image, "state image");
  KVG_ASSIGN(uint32_t magic, in.U32());
  if (magic != kMagic) return Corrupt("magic", magic, kMagic, 0);
  KVG_RETURN(in.Skip(4));
  ImageLayout layout;
  while (in.remaining() > 0) {
    KVG_ASSIGN(CacheLayout cache, LearnCache(in, with_values));
    layout.caches.push_back(std::move(cache));
  }
  if (layout.caches.empty()) return Corrupt("cache count", 0, 1, in.offset());
  return layout;
}

// What the positions of the cells must be.
struct CellRule {
  bool consecutive = false;      // first .. end-1; else any ascending ones
  bool may_start_later = false;  // a window: a run that ends with end-1
  int32_t first = 0, end = 0;
};

Status CheckCells(ByteReader& in, const CellRule& rule, uint32_t* cells) {
  KVG_ASSIGN(uint32_t n_stream, in.U32());
  if (n_stream != 1) return Corrupt("stream count", n_stream, 1, in.offset() - 4);
  KVG_ASSIGN(*cells, in.U32());
  const auto n = static_cast<uint32_t>(rule.end - rule.first);
  const bool too_many = rule.consecutive && (*cells > n || (!rule.may_start_later && *cells != n));
  if (*cells == 0 || too_many) return Corrupt("cell count", *cells, n, in.offset() - 4);
  KVG_ASSIGN(ByteSpan table, in.Take(uint64_t{*cells} * 12));
  ByteReader cell(table, "state image cells");
  int64_t last = -1;
  for (uint32_t i = 0; i < *cells; ++i) {
    KVG_ASSIGN(int32_t pos, cell.I32());
    KVG_ASSIGN(uint32_t n_seq, cell.U32());
    KVG_ASSIGN(uint32_t seq, cell.U32());
    const int64_t want =
        rule.consecutive ? int64_t{rule.end} - *cells + i : std::max(last + 1, int64_t{pos});
    if (pos != want) {
      return Corrupt("position of cell " + std::to_string(i), static_cast<uint32_t>(pos),
                     static_cast<uint64_t>(want), in.offset());
    }
    if (n_seq != 1) return Corrupt("sequences of a cell", n_seq, 1, in.offset());
    if (seq != 0) return Corrupt("sequence id of a cell", seq, 0, in.offset());
    last = pos;
  }
  return Status::Ok();
}

Status CheckCache(ByteReader& in, const CacheLayout& layout, const CellRule& rule) {
  uint32_t cells = 0;
  KVG_RETURN(CheckCells(in, rule, &cells));
  KVG_ASSIGN(uint32_t v_trans, in.U32());
  if (v_trans != (layout.v_transposed ? 1u : 0u)) {
    return Corrupt("value layout (1: transposed)", v_trans, layout.v_transposed, in.offset() - 4);
  }
  KVG_ASSIGN(uint32_t n_layer, in.U32());
  if (n_layer != layout.keys.size()) {
    return Corrupt("layer count", n_layer, layout.keys.size(), in.offset() - 4);
  }
  for (size_t i = 0; i < layout.keys.size() + layout.values.size(); ++i) {
    const bool is_key = i < layout.keys.size();
    const LayerLayout& want = is_key ? layout.keys[i] : layout.values[i - layout.keys.size()];
    const size_t at = in.offset();
    KVG_ASSIGN(LayerLayout got,
               !is_key && layout.v_transposed ? ReadColumns(in, cells) : ReadRows(in, cells));
    if (!(got == want)) {
      const std::string which = (is_key ? "keys of layer " : "values of layer ") +
                                std::to_string(is_key ? i : i - layout.keys.size());
      return Corrupt(which + ": type " + std::to_string(got.type) + " for type " +
                         std::to_string(want.type) + ", row bytes",
                     got.row_bytes, want.row_bytes, at);
    }
  }
  return Status::Ok();
}

Status CheckCaches(ByteSpan image, const ImageLayout& layout, CellRule rule) {
  ByteReader in(image, "state image");
  KVG_ASSIGN(uint32_t magic, in.U32());
  if (magic != kMagic) return Corrupt("magic", magic, kMagic, 0);
  KVG_ASSIGN(uint32_t seq, in.U32());
  if (seq != 0) return Corrupt("sequence id", seq, 0, 4);
  for (size_t i = 0; i < layout.caches.size(); ++i) {
    rule.may_start_later = i > 0;
    KVG_RETURN(CheckCache(in, layout.caches[i], rule));
  }
  if (in.remaining() != 0) return Corrupt("bytes left over", in.remaining(), 0, in.offset());
  return Status::Ok();
}

}  // namespace

Result<ImageLayout> LearnLayout(ByteSpan image) {
  Result<ImageLayout> with = LearnCaches(image, true);
  Result<ImageLayout> without = LearnCaches(image, false);
  if (with.ok() && !without.ok()) return with;
  if (without.ok() && !with.ok()) return without;
  return Status(Code::kUnsupported,
                "state layout of this model is not known to this version (" +
                    (with.ok() ? std::string("ambiguous") : with.status().message()) + ")");
}

Status CheckImageBytes(ByteSpan image, const ImageLayout& layout, int32_t end, int32_t first) {
  if (first < 0 || end <= first) return Status(Code::kCorrupt, "state image: no tokens");
  return CheckCaches(image, layout, {.consecutive = true, .first = first, .end = end});
}

Status CheckImageShape(ByteSpan image, const ImageLayout& layout) {
  return CheckCaches(image, layout, {.consecutive = false});
}

}  // namespace kvgraft::engine_llama
