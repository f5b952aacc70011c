#include "kvgraft/exchange/metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kvgraft/artifact/json_check.h"
#include "kvgraft/artifact/manifest.h"
#include "kvgraft/exchange/stream_tensor.h"

namespace kvgraft::exchange {
namespace {

using nlohmann::json;

constexpr char kManifest[] = "kvgraft.manifest";
constexpr char kStreams[] = "kvgraft.streams";
constexpr char kRopes[] = "kvgraft.ropes";
constexpr char kHalfSplit[] = "half-split";
constexpr char kInterleaved[] = "interleaved";
constexpr int kMaxDepth = 4;

const char* PairingName(RopePairing pairing) {
  return pairing == RopePairing::kInterleaved ? kInterleaved : kHalfSplit;
}

json RopeJson(const RopeSpec& rope) {
  return {{"pairing", PairingName(rope.pairing)},
          {"offset", rope.offset},
          {"n_rot", rope.n_rot},
          {"freq_base", rope.freq_base},
          {"freq_scale", rope.freq_scale},
          {"ext_factor", rope.ext_factor},
          {"attn_factor", rope.attn_factor},
          {"beta_fast", rope.beta_fast},
          {"beta_slow", rope.beta_slow},
          {"n_ctx_orig", rope.n_ctx_orig},
          {"freq_factors", rope.freq_factors}};
}

// How the file's heads are ordered: as the engine has them, unless permuted.
std::string OrderName(const KvLayout& layout, const StreamSpec& stream, const KeyOrder& order) {
  if (order.n > 0) return kHalfSplit;
  if (stream.rope < 0) return "none";
  return PairingName(layout.ropes[static_cast<size_t>(stream.rope)].pairing);
}

json StreamJson(const KvLayout& layout, const StreamSpec& stream, const KeyOrder& order) {
  return {{"tensor", TensorName(stream)},
          {"kind", StreamKindName(stream.kind)},
          {"layer", stream.layer},
          {"positions", PositionsName(layout.tables[stream.table])},
          {"cached_as", DTypeName(stream.type)},
          {"rope", stream.rope >= 0 ? json(stream.rope) : json(nullptr)},
          {"order", OrderName(layout, stream, order)},
          {"permuted", order.n > 0 ? json{order.offset, order.n} : json(nullptr)}};
}

json StreamsJson(const KvLayout& layout, std::string_view architecture) {
  json streams = json::array();
  const std::vector<KeyOrder> orders = OrdersFor(layout, architecture);
  for (size_t i = 0; i < orders.size(); ++i) {
    streams.push_back(StreamJson(layout, layout.streams[i], orders[i]));
  }
  return streams;
}

json RopesJson(const KvLayout& layout) {
  json ropes = json::array();
  for (const RopeSpec& rope : layout.ropes) ropes.push_back(RopeJson(rope));
  return ropes;
}

// One word for all keys, or "mixed".
std::string KeyOrderOfAll(const json& streams) {
  std::string all;
  for (const json& stream : streams) {
    if (stream["kind"] != "key" && stream["kind"] != "mla_rope_key") continue;
    const std::string one = stream["order"];
    if (one == "none") continue;
    if (!all.empty() && all != one) return "mixed";
    all = one;
  }
  return all.empty() ? "none" : all;
}

Result<json> ParseMember(const Metadata& metadata, const char* name) {
  const auto at = metadata.find(name);
  if (at == metadata.end()) {
    return Status(Code::kCorrupt, std::string("the metadata has no ") + name);
  }
  KVG_RETURN(artifact::CheckJson(at->second, kMaxDepth).Annotate(name));
  try {
    return json::parse(at->second);
  } catch (const std::exception& e) {
    return Status(Code::kCorrupt, std::string(name) + ": " + e.what());
  }
}

// Ok when both arrays hold the same objects; names the element and the member.
Status Compare(const char* name, const json& file, const json& here) {
  if (file == here) return Status::Ok();
  if (!file.is_array() || file.size() != here.size()) {
    return Status(Code::kMismatch, std::string(name) + ": " +
                                       (file.is_array() ? std::to_string(file.size()) : "no") +
                                       " entries in the file, " + std::to_string(here.size()) +
                                       " here");
  }
  for (size_t i = 0; i < here.size(); ++i) {
    for (const auto& [key, value] : here[i].items()) {
      const bool has = file[i].is_object() && file[i].contains(key);
      if (has && file[i][key] == value) continue;
      return Status(Code::kMismatch, std::string(name) + ", entry " + std::to_string(i) + ": " +
                                         key + " is " + (has ? file[i][key].dump() : "(absent)") +
                                         " in the file, " + value.dump() + " here");
    }
  }
  return Status(Code::kMismatch, std::string(name) + ": members that this version does not know");
}

}  // namespace

std::vector<KeyOrder> OrdersFor(const KvLayout& layout, std::string_view architecture) {
  std::vector<KeyOrder> orders;
  for (const StreamSpec& stream : layout.streams) {
    orders.push_back(OrderFor(layout, stream, architecture));
  }
  return orders;
}

Result<Metadata> MakeMetadata(const artifact::Manifest& manifest, const KvLayout& layout,
                              std::string_view architecture, const std::string& image_sha256) {
  Metadata out;
  KVG_ASSIGN(out[kManifest], artifact::ManifestToJson(manifest));
  const json streams = StreamsJson(layout, architecture);
  out[kFormatName] = kFormatVersion;
  out["kvgraft.id"] = manifest.id;
  out["kvgraft.tier"] = manifest.tier;
  out["kvgraft.model"] = manifest.model_name;
  out["kvgraft.architecture"] = std::string(architecture);
  out["kvgraft.model_sha256"] = manifest.identity.Get("model.sha256");
  out["kvgraft.keys_rotated"] = "true";  // RoPE is applied, as in Hugging Face's caches
  out["kvgraft.key_order"] = KeyOrderOfAll(streams);
  out[kImageSha256] = image_sha256;
  out[kStreams] = streams.dump();
  out[kRopes] = RopesJson(layout).dump();
  return out;
}

Result<artifact::Manifest> ReadManifest(const Metadata& metadata) {
  const auto format = metadata.find(kFormatName);
  if (format == metadata.end()) {
    return Status(Code::kUnsupported,
                  "the metadata has no kvgraft.format: not a state from kvgraft export, nor made "
                  "with the metadata of one");
  }
  if (format->second != kFormatVersion) {
    return Status(Code::kUnsupported, "kvgraft.format is " + format->second.substr(0, 32) +
                                          ", this program reads " + kFormatVersion);
  }
  const auto manifest = metadata.find(kManifest);
  if (manifest == metadata.end()) {
    return Status(Code::kCorrupt, "the metadata has no kvgraft.manifest");
  }
  return artifact::ManifestFromJson(manifest->second);
}

Status CheckStreams(const Metadata& metadata, const KvLayout& layout,
                    std::string_view architecture) {
  KVG_ASSIGN(const json ropes, ParseMember(metadata, kRopes));
  KVG_RETURN(Compare(kRopes, ropes, json::parse(RopesJson(layout).dump())));
  KVG_ASSIGN(const json streams, ParseMember(metadata, kStreams));
  return Compare(kStreams, streams, json::parse(StreamsJson(layout, architecture).dump()));
}

}  // namespace kvgraft::exchange
