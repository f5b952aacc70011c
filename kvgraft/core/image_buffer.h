// A buffer for engine images: tens or hundreds of megabytes that are written whole at once. Making
// it does not fill it with zeros first, and it asks for huge pages: on a virtual machine page
// faults of 4 KiB took most of the time of a graft at another position.
#pragma once

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft {

// Of any alignment that a type has; std::bad_alloc when memory does not suffice.
void* AllocateImageBytes(size_t n_bytes);
void FreeImageBytes(void* bytes) noexcept;

// Elements made without a value stay uninitialised.
template <typename T>
struct ImageAllocator {
  using value_type = T;
  ImageAllocator() = default;
  template <typename U>
  ImageAllocator(const ImageAllocator<U>&) noexcept {}  // NOLINT: as std::allocator

  T* allocate(size_t n) { return static_cast<T*>(AllocateImageBytes(n * sizeof(T))); }
  void deallocate(T* p, size_t) noexcept { FreeImageBytes(p); }
  template <typename U>
  void construct(U* p) noexcept {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
  bool operator==(const ImageAllocator&) const = default;
};

using ImageBuffer = std::vector<uint8_t, ImageAllocator<uint8_t>>;

// A buffer of n_bytes; kExhausted when memory does not suffice.
Result<ImageBuffer> NewImageBuffer(uint64_t n_bytes);

}  // namespace kvgraft
