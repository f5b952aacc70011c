// The engine's image of a context, in a buffer of its own.
#pragma once

#include "kvgraft/core/image_buffer.h"
#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

// The engine's image of the context's live sequence, written once into a new buffer. kExhausted
// when memory does not suffice.
Result<ImageBuffer> TakeImage(engine::Context& context);

}  // namespace kvgraft::session
