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
  if (n_layer == 0 || n_layer > kMaxLayers)
    return Corrupt("layer count", n_layer, kMaxLayers, in.offset());
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

// A row of a recurrent layer, which may have no bytes (a convolution without a scan).
Result<LayerLayout> ReadRow(ByteReader& in) {
  LayerLayout layer;
  KVG_ASSIGN(layer.type, in.I32());
  KVG_ASSIGN(layer.row_bytes, in.U64());
  if (layer.row_bytes > in.remaining()) {
    return Corrupt("row size", layer.row_bytes, in.remaining(), in.offset());
  }
  KVG_RETURN(in.Skip(layer.row_bytes));
  return layer;
}

Result<RecurrentLayout> LearnRecurrent(ByteReader& in, uint32_t pos) {
  RecurrentLayout out;
  uint32_t head[5] = {};  // cells, position, sequences, s_trans, layers
  for (uint32_t& v : head) {
    KVG_ASSIGN(v, in.U32());
  }
  if (head[0] != 1) return Corrupt("recurrent cell count", head[0], 1, in.offset());
  if (head[1] != pos) return Corrupt("recurrent position", head[1], pos, in.offset());
  if (head[2] != 0) return Corrupt("recurrent sequences", head[2], 0, in.offset());
  if (head[3] != 0) return Corrupt("recurrent layout", head[3], 0, in.offset());
  if (head[4] == 0 || head[4] > kMaxLayers) {
    return Corrupt("layer count", head[4], kMaxLayers, in.offset());
  }
  out.n_layer = head[4];
  while (in.remaining() > 0) {
    KVG_ASSIGN(LayerLayout row, ReadRow(in));
    out.rows.push_back(row);
  }
  if (out.rows.empty() || out.rows.size() > 2 * out.n_layer) {
    return Corrupt("recurrent row count", out.rows.size(), 2 * out.n_layer, in.offset());
  }
  return out;
}

// All ways to read the rest of an image of one cell: each cache with values or without.
void LearnRest(ByteReader in, std::optional<uint32_t> recurrent, const ImageLayout& before,
               std::vector<ImageLayout>* found, Status* why) {
  constexpr size_t kMaxCaches = 4;
  if (in.remaining() == 0) {
    if (!recurrent && !before.caches.empty()) found->push_back(before);
    return;
  }
  if (recurrent) {
    ByteReader last = in;
    auto layout = LearnRecurrent(last, *recurrent);
    if (layout.ok()) {
      found->push_back(before);
      found->back().recurrent = std::move(layout).value();
    } else {
      *why = layout.status();
    }
  }
  for (const bool with_values : {true, false}) {
    if (before.caches.size() == kMaxCaches) return;
    ByteReader next = in;
    auto cache = LearnCache(next, with_values);
    if (!cache.ok()) {
      *why = cache.status();
      continue;
    }
    ImageLayout layout = before;
    layout.caches.push_back(std::move(cache).value());
    LearnRest(next, recurrent, layout, found, why);
  }
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

Status CheckRecurrent(ByteReader& in, const RecurrentLayout& layout, const CellRule& rule) {
  const uint32_t want[5] = {1, static_cast<uint32_t>(rule.end - 1), 0, 0, layout.n_layer};
  const char* const what[5] = {"recurrent cell count", "recurrent position", "recurrent sequences",
                               "recurrent layout", "layer count"};
  for (int i = 0; i < 5; ++i) {
    KVG_ASSIGN(const uint32_t got, in.U32());
    const bool any = i == 1 && !rule.consecutive && static_cast<int32_t>(got) >= 0;
    if (got != want[i] && !any) return Corrupt(what[i], got, want[i], in.offset() - 4);
  }
  for (size_t i = 0; i < layout.rows.size(); ++i) {
    const size_t at = in.offset();
    KVG_ASSIGN(const LayerLayout got, ReadRow(in));
    if (!(got == layout.rows[i])) {
      return Corrupt("recurrent row " + std::to_string(i) + ": type " + std::to_string(got.type) +
                         " for type " + std::to_string(layout.rows[i].type) + ", row bytes",
                     got.row_bytes, layout.rows[i].row_bytes, at);
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
  if (layout.recurrent) KVG_RETURN(CheckRecurrent(in, *layout.recurrent, rule));
  if (in.remaining() != 0) return Corrupt("bytes left over", in.remaining(), 0, in.offset());
  return Status::Ok();
}

}  // namespace

Result<ImageLayout> LearnLayout(ByteSpan image, bool recurrent, int32_t pos) {
  ByteReader in(image, "state image");
  KVG_ASSIGN(uint32_t magic, in.U32());
  if (magic != kMagic) return Corrupt("magic", magic, kMagic, 0);
  KVG_RETURN(in.Skip(4));
  std::vector<ImageLayout> found;
  Status why = Status(Code::kCorrupt, "state image: no cache in it");
  std::optional<uint32_t> at;
  if (recurrent) at = static_cast<uint32_t>(pos);
  LearnRest(in, at, {}, &found, &why);
  if (found.size() == 1) return found.front();
  return Status(Code::kUnsupported, "state layout of this model is not known to this version (" +
                                        (found.empty() ? why.message() : std::string("ambiguous")) +
                                        ")");
}

Status CheckImageBytes(ByteSpan image, const ImageLayout& layout, int32_t end, int32_t first) {
  if (first < 0 || end <= first) return Status(Code::kCorrupt, "state image: no tokens");
  return CheckCaches(image, layout, {.consecutive = true, .first = first, .end = end});
}

Status CheckImageShape(ByteSpan image, const ImageLayout& layout) {
  return CheckCaches(image, layout, {.consecutive = false});
}

}  // namespace kvgraft::engine_llama
