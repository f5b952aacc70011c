// The strings in the header of an exchanged file: what a person reads, and what an import is held
// against.
#pragma once

#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/kv_state.h"
#include "kvgraft/exchange/key_order.h"
#include "kvgraft/exchange/safetensors.h"

namespace kvgraft::exchange {

inline constexpr char kFormatName[] = "kvgraft.format";
inline constexpr char kFormatVersion[] = "1";
inline constexpr char kImageSha256[] = "kvgraft.image_sha256";

// The order of each stream's heads in the file.
std::vector<KeyOrder> OrdersFor(const KvLayout& layout, std::string_view architecture);

// kInvalidArgument for a manifest that cannot be written.
Result<Metadata> MakeMetadata(const artifact::Manifest& manifest, const KvLayout& layout,
                              std::string_view architecture, const std::string& image_sha256);

// The manifest of the exported artifact. kUnsupported for a file of another kind or a newer one,
// kCorrupt for a manifest that is none.
Result<artifact::Manifest> ReadManifest(const Metadata& metadata);

// Ok when the file describes the streams (element types, rotation, order of the keys) as this
// model's context has them. kMismatch names the first that differs; kCorrupt.
Status CheckStreams(const Metadata& metadata, const KvLayout& layout,
                    std::string_view architecture);

}  // namespace kvgraft::exchange
