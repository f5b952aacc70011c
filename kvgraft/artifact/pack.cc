#include "kvgraft/artifact/pack.h"

namespace kvgraft::artifact {
namespace {

template <typename T>
void Store(uint8_t* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

template <typename T>
T Load(const uint8_t* in) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(in[i]) << (8 * i);
  return value;
}

}  // namespace

std::vector<uint8_t> PackI32(std::span<const int32_t> values) {
  std::vector<uint8_t> out(values.size() * 4);
  for (size_t i = 0; i < values.size(); ++i) Store(&out[i * 4], static_cast<uint32_t>(values[i]));
  return out;
}

std::vector<uint8_t> PackCounting(uint64_t n) {
  std::vector<uint8_t> out(static_cast<size_t>(n) * 4);
  for (uint64_t i = 0; i < n; ++i) Store(&out[i * 4], static_cast<uint32_t>(i));
  return out;
}

std::vector<uint8_t> PackU64(std::span<const uint64_t> values) {
  std::vector<uint8_t> out(values.size() * 8);
  for (size_t i = 0; i < values.size(); ++i) Store(&out[i * 8], values[i]);
  return out;
}

std::vector<int32_t> UnpackI32(ByteSpan bytes) {
  std::vector<int32_t> out(bytes.size() / 4);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(Load<uint32_t>(&bytes[i * 4]));
  }
  return out;
}

std::vector<uint64_t> UnpackU64(ByteSpan bytes) {
  std::vector<uint64_t> out(bytes.size() / 8);
  for (size_t i = 0; i < out.size(); ++i) out[i] = Load<uint64_t>(&bytes[i * 8]);
  return out;
}

}  // namespace kvgraft::artifact
