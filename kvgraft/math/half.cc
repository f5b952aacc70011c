#include "kvgraft/math/half.h"

#include <ggml.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define KVGRAFT_F16C 1
#endif

namespace kvgraft::math {
namespace {

#if defined(KVGRAFT_F16C)
// The library is built for any x86-64; this part runs where the processor has it.
bool HasF16c() {
  static const bool has = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
  return has;
}

__attribute__((target("avx,f16c"))) size_t UpInEights(const uint16_t* in, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  return i;
}

__attribute__((target("avx,f16c"))) size_t DownInEights(const float* in, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  return i;
}
#endif

}  // namespace

void HalfToFloat(const uint16_t* in, size_t n, float* out) {
  size_t done = 0;
#if defined(KVGRAFT_F16C)
  if (HasF16c()) done = UpInEights(in, n, out);
#endif
  ggml_fp16_to_fp32_row(in + done, out + done, static_cast<int64_t>(n - done));
}

void FloatToHalf(const float* in, size_t n, uint16_t* out) {
  size_t done = 0;
#if defined(KVGRAFT_F16C)
  if (HasF16c()) done = DownInEights(in, n, out);
#endif
  ggml_fp32_to_fp16_row(in + done, out + done, static_cast<int64_t>(n - done));
}

}  // namespace kvgraft::math
