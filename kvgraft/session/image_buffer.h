// A buffer for engine images: tens or hundreds of megabytes that the engine overwrites at once, so
// growing it does not fill it with zeros first.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kvgraft/core/status.h"
#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

// std::allocator, except that elements made without a value stay uninitialised.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  UninitializedAllocator() = default;
  template <typename U>
  UninitializedAllocator(const UninitializedAllocator<U>&) noexcept {}  // NOLINT: as std::allocator

  template <typename U>
  void construct(U* p) noexcept {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};

using ImageBuffer = std::vector<uint8_t, UninitializedAllocator<uint8_t>>;

// The engine's image of the context's live sequence, written once into a new buffer. kExhausted
// when memory does not suffice.
Result<ImageBuffer> TakeImage(engine::Context& context);

}  // namespace kvgraft::session
