#include "kvgraft/core/image_buffer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvgraft {
namespace {

TEST(ImageBuffer, HoldsWhatIsWritten) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{4} << 20, (size_t{5} << 20) + 3}) {
    auto buffer = NewImageBuffer(n);
    ASSERT_TRUE(buffer.ok());
    ASSERT_EQ(buffer->size(), n);
    if (n > 0) std::memset(buffer->data(), 7, n);
    const ImageBuffer copy = *buffer;
    buffer->resize(n + 100, 9);  // grows: what was there stays, what has a value gets it
    for (const size_t i : {size_t{0}, n / 2, n - 1}) {
      if (n == 0) break;
      EXPECT_EQ((*buffer)[i], 7) << n;
      EXPECT_EQ(copy[i], 7) << n;
    }
    EXPECT_EQ(buffer->back(), 9);
  }
}

TEST(ImageBuffer, SaysWhenMemoryDoesNotSuffice) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer ends the process on such sizes";
#endif
  for (const uint64_t n : {uint64_t{1} << 50, uint64_t{1} << 62, ~uint64_t{0}}) {
    EXPECT_EQ(NewImageBuffer(n).status().code(), Code::kExhausted) << n;
  }
}

}  // namespace
}  // namespace kvgraft
