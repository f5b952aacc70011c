// Between libllama's state image and planes: where each stream of a state lies in the image, and an
// image laid out for cells at any positions.
#pragma once

#include "kvgraft/core/kv_state.h"
#include "kvgraft/engine_llama/geometry_internal.h"
#include "kvgraft/engine_llama/image.h"

namespace kvgraft::engine_llama {

// Which entry of the image a stream is a part of.
struct StreamPlace {
  uint32_t cache = 0;  // behind the caches: the recurrent state, whose rows are the entries
  bool value = false;
  uint32_t entry = 0;
};

struct Planes {
  ImageLayout image;
  KvLayout layout;
  std::vector<StreamPlace> places;  // as layout.streams
};

// Matches the image that the engine writes with what the model file says. RoPE is not filled in.
// kUnsupported, by name, when they do not agree.
Result<Planes> MatchPlanes(const ImageLayout& image, const ModelGeometry& geometry,
                           const std::string& arch);

// Views into an image of this layout, with the positions of its cells. kCorrupt, as
// CheckImageBytes, for bytes that are not one; positions may be any ascending ones.
Result<KvView> ViewPlanes(const Planes& planes, ByteSpan image);
Result<MutableKvView> ViewPlanes(const Planes& planes, MutableByteSpan image);

// The image of cells at these positions (one list per table, ascending), streams uninitialised.
Result<ImageBuffer> FormatPlanes(const Planes& planes,
                                 const std::vector<std::vector<int32_t>>& positions);
// Writes other positions, as many, into the cells of an image that ViewPlanes takes.
Status StorePositions(const Planes& planes, MutableByteSpan image,
                      const std::vector<std::vector<int32_t>>& positions);

}  // namespace kvgraft::engine_llama
