// Arrays of numbers as little-endian bytes and back. Internal to this module.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvgraft/core/bytes.h"

namespace kvgraft::artifact {

// 4 bytes a value.
std::vector<uint8_t> PackI32(std::span<const int32_t> values);
// 0, 1, .. n-1 in the same form.
std::vector<uint8_t> PackCounting(uint64_t n);
// 8 bytes a value.
std::vector<uint8_t> PackU64(std::span<const uint64_t> values);

// The reverse; bytes that do not make a whole value at the end are left out.
std::vector<int32_t> UnpackI32(ByteSpan bytes);
std::vector<uint64_t> UnpackU64(ByteSpan bytes);

}  // namespace kvgraft::artifact
