// F16 and F32, at the speed of memory where the processor converts in hardware.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvgraft::math {

// IEEE 754 binary16 bits, unaligned pointers allowed. Exact upwards; downwards round to nearest,
// ties to even, as the engine does.
void HalfToFloat(const uint16_t* in, size_t n, float* out);
void FloatToHalf(const float* in, size_t n, uint16_t* out);

}  // namespace kvgraft::math
