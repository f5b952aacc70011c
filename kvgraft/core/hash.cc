#include "kvgraft/core/hash.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>
#include <xxhash.h>
// Installed only with a library that chooses its kernel by the processor (SSE2, AVX2, AVX-512).
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace kvgraft {

// With the header above, XXH3_64bits stands for the dispatching function.
uint64_t Xxh3(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Sha256::Impl {
  EVP_MD_CTX* context = nullptr;
  Impl() : context(EVP_MD_CTX_new()) {
    KVG_CHECK(context != nullptr);
    KVG_CHECK(EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  }
  ~Impl() { EVP_MD_CTX_free(context); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(ByteSpan bytes) {
  KVG_CHECK(impl_ != nullptr);
  if (bytes.empty()) return;
  KVG_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Finish() {
  KVG_CHECK(impl_ != nullptr);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  KVG_CHECK(EVP_DigestFinal_ex(impl_->context, digest, &n) == 1 && n == 32);
  impl_.reset();
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(64);
  for (unsigned int i = 0; i < n; ++i) {
    hex.push_back(kHex[digest[i] >> 4]);
    hex.push_back(kHex[digest[i] & 15]);
  }
  return hex;
}

std::string Sha256Hex(ByteSpan bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

Result<std::string> Sha256File(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo;
    return Status(code, path + ": cannot open: " + std::strerror(error));
  }
#ifdef POSIX_FADV_SEQUENTIAL
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
  Sha256 hash;
  std::vector<uint8_t> buffer(1 << 20);
  Status status;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      status = Status(Code::kIo, path + ": cannot read: " + std::strerror(errno));
      break;
    }
    hash.Update(ByteSpan(buffer.data(), static_cast<size_t>(n)));
  }
  ::close(fd);
  if (!status.ok()) return status;
  return hash.Finish();
}

bool IsSha256Hex(std::string_view s) {
  return s.size() == 64 && std::all_of(s.begin(), s.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace kvgraft
