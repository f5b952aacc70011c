// A state as a safetensors file for Python, and back (docs/exchange.md): one tensor a stream under
// names that Hugging Face's people expect, keys in Hugging Face's order, positions, tokens, text,
// and in the metadata everything that an import needs.
#pragma once

#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/file.h"
#include "kvgraft/engine/engine.h"
#include "kvgraft/exchange/safetensors.h"

namespace kvgraft::exchange {

// The tier of what was edited, or made by another program: never exact, whatever it says.
inline constexpr char kImportedTier[] = "imported";

struct Exported {
  uint64_t file_bytes = 0;
  uint64_t n_tensors = 0;
};

// Writes the artifact's state to `out`, which the caller commits; one stream is in memory at a
// time. The caller has verified the artifact's pages. The context gives the layout only: it may be
// smaller than the state, and what it holds is left alone.
// Errors: kMismatch (the artifact is another model's), kUnsupported (no layout is known for this
// model's cache, or the image holds no tokens), kCorrupt, those of AtomicFile.
Result<Exported> ExportPlanes(engine::Context& context, const engine::Model& model,
                              const artifact::Reader& artifact, AtomicFile* out);

struct Imported {
  artifact::Parts parts;  // manifest.id included
  ImageBuffer image;      // of parts.manifest.n_image_tokens tokens
  // The image, and with it tokens and identity, are bit for bit what was exported: the manifest is
  // the exported artifact's, its tier included. Otherwise the tier is kImportedTier, without a
  // probe, and `difference` says what is not as it was.
  bool identical = false;
  std::string difference;
};

// Builds the artifact of a file that ExportPlanes wrote, or that was made after one. Everything is
// checked before memory for the state is taken: the container, the identity in the metadata against
// the context (kMismatch with every field that differs), the streams and how their keys are
// rotated, every tensor's type and shape, tokens against the vocabulary, positions. Numbers that
// are not finite are refused (kCorrupt) unless they were exported so.
Result<Imported> ImportPlanes(engine::Context& context, const engine::Model& model, ByteSpan file,
                              const std::string& what, const std::string& producer);

}  // namespace kvgraft::exchange
