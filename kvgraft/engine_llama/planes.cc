#include <cstdlib>
#include <cstring>
#include <string>

#include "kvgraft/engine_llama/planes_internal.h"

namespace kvgraft::engine_llama {
namespace {

constexpr size_t kHeaderBytes = 8;        // magic, sequence id
constexpr size_t kCacheHeaderBytes = 8;   // n_stream, cell count
constexpr size_t kCellBytes = 12;         // position, number of sequences, sequence id
constexpr size_t kDataHeaderBytes = 8;    // v_trans, n_layer
constexpr size_t kEntryHeaderBytes = 12;  // either kind of entry
// Cell count, position, number of sequences, s_trans, n_layer.
constexpr size_t kRecurrentHeaderBytes = 20;

Status Unknown(const std::string& arch, const std::string& what) {
  return Status(Code::kUnsupported, "planes: the cache of '" + arch + "' is not laid out as its " +
                                        "file says (" + what + "); only its image can be used");
}

Result<uint64_t> Elements(const LayerLayout& entry) {
  KVG_ASSIGN(const BlockSize block, BlockOf(static_cast<DType>(entry.type)));
  if (entry.row_bytes % block.bytes != 0) return uint64_t{0};
  return entry.row_bytes / block.bytes * block.elements;
}

bool IsQuantised(DType type) {
  return type != DType::kF32 && type != DType::kF16 && type != DType::kBF16;
}

// The largest power of two that divides a head.
uint32_t KeyBlock(uint32_t head_dim) {
  uint32_t n = 64;
  while (head_dim % (n * 2) == 0) n *= 2;
  return n;
}

// llama-kv-cache.cpp: quantised caches of heads that are multiples of 64 are rotated, keys by the
// largest power of two that divides a head, values by 64.
uint32_t HadamardOf(DType type, uint32_t head_dim, StreamKind kind) {
  const char* off = std::getenv("LLAMA_ATTN_ROT_DISABLE");  // the engine's own switch
  if (!IsQuantised(type) || head_dim % 64 != 0 || (off != nullptr && std::atoi(off) != 0)) return 0;
  return kind == StreamKind::kValue ? 64 : KeyBlock(head_dim);
}

class Matcher {
 public:
  Matcher(const ModelGeometry& geometry, const std::string& arch, Planes* out)
      : geometry_(geometry), arch_(arch), out_(out) {}

  Status Run() {
    const ImageLayout& image = out_->image;
    const auto n_caches = static_cast<uint32_t>(image.caches.size());
    if (n_caches > 2) return Unknown(arch_, std::to_string(n_caches) + " caches");
    out_->layout.tables.clear();
    for (uint32_t c = 0; c < n_caches; ++c) {
      const bool indexer = IsIndexer(c);
      out_->layout.tables.push_back(indexer  ? TableKind::kIndexer
                                    : c == 0 ? TableKind::kAll
                                             : TableKind::kWindow);
      const std::vector<uint32_t> layers = LayersOf(c, n_caches);
      const CacheLayout& cache = image.caches[c];
      if (cache.keys.size() != layers.size()) {
        return Unknown(arch_, std::to_string(cache.keys.size()) + " layers in cache " +
                                  std::to_string(c) + ", expected " +
                                  std::to_string(layers.size()));
      }
      for (uint32_t i = 0; i < layers.size(); ++i) {
        KVG_RETURN(indexer ? AddIndexerKeys(c, i, layers[i]) : AddKeys(c, i, layers[i]));
      }
      for (uint32_t i = 0; i < cache.values.size(); ++i) KVG_RETURN(AddValues(c, i, layers[i]));
    }
    return image.recurrent ? AddRecurrent(n_caches) : Status::Ok();
  }

 private:
  std::vector<uint32_t> LayersOf(uint32_t cache, uint32_t n_caches) const {
    const bool all = n_caches == 1 || geometry_.indexer_dim > 0;
    std::vector<uint32_t> layers;
    for (uint32_t i = 0; i < geometry_.layers.size(); ++i) {
      const LayerGeometry& layer = geometry_.layers[i];
      if (layer.attention && (all || layer.windowed == (cache == 1))) layers.push_back(i);
    }
    return layers;
  }

  // A row for the convolution of each recurrent layer, then one for the scan of each.
  Status AddRecurrent(uint32_t place) {
    const RecurrentLayout& recurrent = *out_->image.recurrent;
    std::vector<uint32_t> layers;
    for (uint32_t i = 0; i < geometry_.layers.size(); ++i) {
      if (place == 0 || !geometry_.layers[i].attention) layers.push_back(i);
    }
    const size_t n = layers.size(), n_rows = recurrent.rows.size();
    if (recurrent.n_layer != geometry_.layers.size() || n_rows != 2 * n) {
      return Unknown(arch_, std::to_string(n_rows) + " recurrent rows, expected two for each of " +
                                std::to_string(n) + " layers");
    }
    const auto table = static_cast<uint32_t>(out_->layout.tables.size());
    out_->layout.tables.push_back(TableKind::kRecurrent);
    for (uint32_t i = 0; i < n_rows; ++i) {
      const LayerLayout& at = recurrent.rows[i];
      if (at.row_bytes == 0) continue;  // a convolution without a scan
      StreamSpec s = Spec(table, layers[i % n], at);
      s.kind = i < n ? StreamKind::kConvState : StreamKind::kScanState;
      KVG_ASSIGN(const uint64_t width, Elements(at));
      KVG_RETURN(SetHeads(width, 1, static_cast<uint32_t>(width), s.layer, &s));
      Add(s, {place, false, i});
    }
    return Status::Ok();
  }

  // DeepSeek sparse attention: the second cache holds what the indexer looks at.
  bool IsIndexer(uint32_t cache) const {
    return cache == 1 && geometry_.indexer_dim > 0 && out_->image.caches[cache].values.empty();
  }

  Status AddIndexerKeys(uint32_t cache, uint32_t entry, uint32_t layer) {
    const LayerLayout& at = out_->image.caches[cache].keys[entry];
    StreamSpec s = Spec(cache, layer, at);
    s.kind = StreamKind::kIndexerKey;
    KVG_ASSIGN(const uint64_t width, Elements(at));
    KVG_RETURN(SetHeads(width, 1, geometry_.indexer_dim, layer, &s));
    s.rope_hadamard = s.head_dim % 64 == 0 ? KeyBlock(s.head_dim) : 0;
    Add(s, {cache, false, entry});
    return Status::Ok();
  }

  Status AddKeys(uint32_t cache, uint32_t entry, uint32_t layer) {
    const LayerLayout& at = out_->image.caches[cache].keys[entry];
    const LayerGeometry& g = geometry_.layers[layer];
    KVG_ASSIGN(const uint64_t width, Elements(at));
    StreamSpec s = Spec(cache, layer, at);
    if (out_->image.caches[cache].values.empty()) {
      // MLA: one row for all heads, the latent and then the key that carries the position.
      if (geometry_.kv_lora_rank == 0 || width <= geometry_.kv_lora_rank || IsQuantised(s.type)) {
        return Unknown(arch_, "keys without values, " + std::to_string(width) + " wide");
      }
      s.kind = StreamKind::kMlaLatent;
      s.n_heads = 1;
      s.head_dim = geometry_.kv_lora_rank;
      Add(s, {cache, false, entry});
      s.kind = StreamKind::kMlaRopeKey;
      s.row_offset = geometry_.kv_lora_rank;
      s.head_dim = static_cast<uint32_t>(width) - geometry_.kv_lora_rank;
      Add(s, {cache, false, entry});
      return Status::Ok();
    }
    s.kind = StreamKind::kKey;
    KVG_RETURN(SetHeads(width, g.n_kv_heads, g.key_dim, layer, &s));
    s.hadamard = HadamardOf(s.type, s.head_dim, s.kind);
    Add(s, {cache, false, entry});
    return Status::Ok();
  }

  Status AddValues(uint32_t cache, uint32_t entry, uint32_t layer) {
    const LayerLayout& at = out_->image.caches[cache].values[entry];
    const LayerGeometry& g = geometry_.layers[layer];
    StreamSpec s = Spec(cache, layer, at);
    s.kind = StreamKind::kValue;
    if (out_->image.caches[cache].v_transposed) s.order = StreamOrder::kColumns;
    KVG_ASSIGN(const uint64_t width, Elements(at));
    KVG_RETURN(SetHeads(width, g.n_kv_heads, g.value_dim, layer, &s));
    s.hadamard = HadamardOf(s.type, s.head_dim, s.kind);
    Add(s, {cache, true, entry});
    return Status::Ok();
  }

  Status SetHeads(uint64_t width, uint32_t n_heads, uint32_t dim, uint32_t layer,
                  StreamSpec* s) const {
    if (n_heads == 0 || width != uint64_t{n_heads} * dim) {
      return Unknown(arch_, "layer " + std::to_string(layer) + ": " + std::to_string(width) +
                                " elements a token, expected " + std::to_string(n_heads) +
                                " heads of " + std::to_string(dim));
    }
    s->n_heads = n_heads;
    s->head_dim = dim;
    return Status::Ok();
  }

  static StreamSpec Spec(uint32_t cache, uint32_t layer, const LayerLayout& at) {
    StreamSpec s;
    s.layer = layer;
    s.table = cache;
    s.type = static_cast<DType>(at.type);
    return s;
  }

  void Add(const StreamSpec& spec, const StreamPlace& place) {
    out_->layout.streams.push_back(spec);
    out_->places.push_back(place);
  }

  const ModelGeometry& geometry_;
  const std::string& arch_;
  Planes* out_;
};

uint64_t EntryBytes(const LayerLayout& entry, uint64_t n_cells) {
  return kEntryHeaderBytes + entry.row_bytes * n_cells;
}

uint64_t CacheBytes(const CacheLayout& cache, uint64_t n_cells) {
  uint64_t bytes = kCacheHeaderBytes + kCellBytes * n_cells + kDataHeaderBytes;
  for (const LayerLayout& e : cache.keys) bytes += EntryBytes(e, n_cells);
  for (const LayerLayout& e : cache.values) bytes += EntryBytes(e, n_cells);
  return bytes;
}

uint32_t GetU32(ByteSpan in, size_t at) {
  uint32_t v = 0;
  std::memcpy(&v, in.data() + at, sizeof v);
  return v;
}

uint64_t RecurrentBytes(const RecurrentLayout& recurrent) {
  uint64_t bytes = kRecurrentHeaderBytes;
  for (const LayerLayout& e : recurrent.rows) bytes += EntryBytes(e, 1);
  return bytes;
}

// Offsets into an image that has been checked.
struct CacheOffsets {
  size_t cells = 0, n_cells = 0;     // positions are kCellBytes apart
  std::vector<size_t> keys, values;  // of the entries' data
};

std::vector<CacheOffsets> Locate(const ImageLayout& layout, ByteSpan image) {
  std::vector<CacheOffsets> out;
  size_t at = kHeaderBytes;
  for (const CacheLayout& cache : layout.caches) {
    CacheOffsets o;
    o.n_cells = GetU32(image, at + 4);
    o.cells = at + kCacheHeaderBytes;
    at = o.cells + kCellBytes * o.n_cells + kDataHeaderBytes;
    for (const LayerLayout& e : cache.keys) {
      o.keys.push_back(at + kEntryHeaderBytes);
      at += EntryBytes(e, o.n_cells);
    }
    for (const LayerLayout& e : cache.values) {
      o.values.push_back(at + kEntryHeaderBytes);
      at += EntryBytes(e, o.n_cells);
    }
    out.push_back(std::move(o));
  }
  if (layout.recurrent) {
    CacheOffsets o;
    o.n_cells = 1;
    o.cells = at + 4;
    at += kRecurrentHeaderBytes;
    for (const LayerLayout& e : layout.recurrent->rows) {
      o.keys.push_back(at + kEntryHeaderBytes);
      at += EntryBytes(e, 1);
    }
    out.push_back(std::move(o));
  }
  return out;
}

const LayerLayout& EntryAt(const ImageLayout& image, const StreamPlace& place) {
  if (place.cache == image.caches.size()) return image.recurrent->rows[place.entry];
  const CacheLayout& cache = image.caches[place.cache];
  return (place.value ? cache.values : cache.keys)[place.entry];
}

template <typename Byte>
Result<BasicKvView<Byte>> View(const Planes& planes, std::span<Byte> image) {
  KVG_RETURN(CheckImageShape(image, planes.image));
  const std::vector<CacheOffsets> caches = Locate(planes.image, image);
  BasicKvView<Byte> view;
  view.layout = &planes.layout;
  for (const CacheOffsets& cache : caches) {
    std::vector<int32_t>& positions = view.positions.emplace_back(cache.n_cells);
    for (size_t i = 0; i < cache.n_cells; ++i) {
      positions[i] = static_cast<int32_t>(GetU32(image, cache.cells + kCellBytes * i));
    }
  }
  for (size_t i = 0; i < planes.places.size(); ++i) {
    const StreamPlace& place = planes.places[i];
    const CacheOffsets& at = caches[place.cache];
    const LayerLayout& entry = EntryAt(planes.image, place);
    const StreamSpec& spec = planes.layout.streams[i];
    const size_t start = (place.value ? at.values : at.keys)[place.entry];
    KVG_ASSIGN(const BlockSize block, BlockOf(spec.type));
    const size_t skip = size_t{spec.row_offset} / block.elements * block.bytes;
    view.streams.push_back(
        {image.subspan(start + skip, entry.row_bytes * at.n_cells - skip), entry.row_bytes});
  }
  return view;
}

// Writes little-endian numbers into an image that is there already: its streams are large, a buffer
// that grows would copy them several times, and one that is zeroed would touch them for nothing.
class ImageWriter {
 public:
  explicit ImageWriter(ImageBuffer image) : image_(std::move(image)) {}
  template <typename T>
  void Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      image_[at_ + i] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i));
    }
    at_ += sizeof(T);
  }
  void Skip(size_t n) { at_ += n; }
  size_t at() const { return at_; }
  ImageBuffer Take() && { return std::move(image_); }

 private:
  ImageBuffer image_;
  size_t at_ = 0;
};

void PutCells(ImageWriter* out, const std::vector<int32_t>& positions) {
  for (const int32_t pos : positions) {
    out->Put<int32_t>(pos);
    out->Put<uint32_t>(1);
    out->Put<int32_t>(0);
  }
}

void PutRecurrent(ImageWriter* out, const RecurrentLayout& recurrent, int32_t position) {
  out->Put<uint32_t>(1);
  out->Put(position);
  out->Put<uint32_t>(0);  // sequences
  out->Put<uint32_t>(0);  // s_trans
  out->Put(recurrent.n_layer);
  for (const LayerLayout& row : recurrent.rows) {
    out->Put(row.type);
    out->Put(row.row_bytes);
    out->Skip(row.row_bytes);
  }
}

Status CheckPositions(const Planes& planes, const std::vector<std::vector<int32_t>>& positions) {
  if (positions.size() != planes.layout.tables.size()) {
    return Status(Code::kInvalidArgument,
                  "planes: positions for " + std::to_string(positions.size()) +
                      " tables, the state has " + std::to_string(planes.layout.tables.size()));
  }
  for (const std::vector<int32_t>& table : positions) {
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i] < 0 || (i > 0 && table[i] <= table[i - 1])) {
        return Status(Code::kInvalidArgument, "planes: position " + std::to_string(table[i]) +
                                                  " of cell " + std::to_string(i) +
                                                  "; expected ascending ones from 0");
      }
    }
  }
  const std::vector<int32_t>& last = positions.back();
  if (planes.image.recurrent &&
      (last.size() != 1 || positions[0].empty() || last[0] != positions[0].back())) {
    return Status(Code::kInvalidArgument,
                  "planes: a recurrent state is one cell at the last position");
  }
  return Status::Ok();
}

}  // namespace

Result<Planes> MatchPlanes(const ImageLayout& image, const ModelGeometry& geometry,
                           const std::string& arch) {
  Planes planes;
  planes.image = image;
  KVG_RETURN(Matcher(geometry, arch, &planes).Run());
  return planes;
}

Result<KvView> ViewPlanes(const Planes& planes, ByteSpan image) {
  return View<const uint8_t>(planes, image);
}
Result<MutableKvView> ViewPlanes(const Planes& planes, MutableByteSpan image) {
  return View<uint8_t>(planes, image);
}

Result<ImageBuffer> FormatPlanes(const Planes& planes,
                                 const std::vector<std::vector<int32_t>>& positions) {
  KVG_RETURN(CheckPositions(planes, positions));
  size_t n_bytes = kHeaderBytes;
  for (size_t c = 0; c < planes.image.caches.size(); ++c) {
    n_bytes += CacheBytes(planes.image.caches[c], positions[c].size());
  }
  if (planes.image.recurrent) n_bytes += RecurrentBytes(*planes.image.recurrent);
  KVG_ASSIGN(ImageBuffer image, NewImageBuffer(n_bytes));
  ImageWriter out(std::move(image));
  out.Put<uint32_t>(kImageMagic);
  out.Put<int32_t>(0);
  for (size_t c = 0; c < planes.image.caches.size(); ++c) {
    const CacheLayout& cache = planes.image.caches[c];
    const uint64_t n = positions[c].size();
    out.Put<uint32_t>(1);
    out.Put(static_cast<uint32_t>(n));
    PutCells(&out, positions[c]);
    out.Put<uint32_t>(cache.v_transposed ? 1 : 0);
    out.Put(static_cast<uint32_t>(cache.keys.size()));
    const auto put = [&](const LayerLayout& entry, bool columns) {
      out.Put(entry.type);
      if (columns) {
        out.Put(entry.element_bytes);
        out.Put(entry.width);
      } else {
        out.Put(entry.row_bytes);
      }
      out.Skip(entry.row_bytes * n);
    };
    for (const LayerLayout& e : cache.keys) put(e, false);
    for (const LayerLayout& e : cache.values) put(e, cache.v_transposed);
  }
  if (planes.image.recurrent) PutRecurrent(&out, *planes.image.recurrent, positions.back()[0]);
  if (out.at() != n_bytes) return Status(Code::kInternal, "planes: image of another size");
  return std::move(out).Take();
}

Status StorePositions(const Planes& planes, MutableByteSpan image,
                      const std::vector<std::vector<int32_t>>& positions) {
  KVG_RETURN(CheckImageShape(image, planes.image));
  KVG_RETURN(CheckPositions(planes, positions));
  if (planes.image.recurrent) {
    return Status(Code::kUnsupported,
                  "planes: a recurrent state is valid at its own position only");
  }
  const std::vector<CacheOffsets> caches = Locate(planes.image, image);
  for (size_t c = 0; c < caches.size(); ++c) {
    if (positions[c].size() != caches[c].n_cells) {
      return Status(Code::kInvalidArgument, "planes: " + std::to_string(positions[c].size()) +
                                                " positions for " +
                                                std::to_string(caches[c].n_cells) + " cells");
    }
    for (size_t i = 0; i < positions[c].size(); ++i) {
      std::memcpy(image.data() + caches[c].cells + kCellBytes * i, &positions[c][i], 4);
    }
  }
  return Status::Ok();
}

}  // namespace kvgraft::engine_llama
