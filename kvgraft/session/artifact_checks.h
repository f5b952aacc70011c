// What every way of using an artifact checks before it touches a context.
#pragma once

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

// The token list against the manifest and the vocabulary, the positions, the alignment of the
// image. kCorrupt, or kUnsupported for what this version cannot restore.
Status CheckTokens(const engine::Model& model, const artifact::Reader& artifact);

// The machine's cores for 0.
unsigned ThreadsOr(unsigned asked);

}  // namespace kvgraft::session
