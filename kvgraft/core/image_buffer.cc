#include "kvgraft/core/image_buffer.h"

#include <cstdlib>
#include <exception>

#include "kvgraft/core/bytes.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace kvgraft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* AllocateImageBytes(size_t n_bytes) {
  const bool huge = n_bytes >= 2 * kHugePage && n_bytes <= SIZE_MAX - kHugePage;
  const size_t rounded = huge ? (n_bytes + kHugePage - 1) / kHugePage * kHugePage : n_bytes;
  void* bytes = huge ? std::aligned_alloc(kHugePage, rounded) : std::malloc(rounded);
  if (bytes == nullptr && n_bytes > 0) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  if (huge) madvise(bytes, rounded, MADV_HUGEPAGE);  // a hint: pages of any size will do
#endif
  return bytes;
}

void FreeImageBytes(void* bytes) noexcept { std::free(bytes); }

Result<ImageBuffer> NewImageBuffer(uint64_t n_bytes) {
  ImageBuffer out;
  try {
    out.resize(n_bytes);
  } catch (const std::exception&) {  // bad_alloc or length_error
    return Status(Code::kExhausted, "image: no memory for the state's " + FormatBytes(n_bytes));
  }
  return out;
}

}  // namespace kvgraft
