// What the tests of this module share: a store in a folder of its own, and small artifacts.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kvgraft/core/file.h"
#include "kvgraft/store/store.h"

namespace kvgraft::store {

#define KVG_ASSERT_OK(expr)                                                             \
  do {                                                                                  \
    const auto kvg_ok_ = StatusOf(expr);                                                \
    ASSERT_TRUE(kvg_ok_.ok()) << CodeName(kvg_ok_.code()) << ": " << kvg_ok_.message(); \
  } while (0)

inline Status StatusOf(Status status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.ok() ? Status::Ok() : result.status();
}
template <typename T>
Code CodeOf(const Result<T>& result) {
  return StatusOf(result).code();
}
inline Code CodeOf(const Status& status) { return status.code(); }

struct Sample {
  artifact::Parts parts;
  std::vector<uint8_t> image;
};

// An artifact of model `model` with these tokens; the image differs with `seed`.
inline Sample MakeSample(uint32_t seed, size_t image_bytes = 3000, std::vector<int32_t> tokens = {},
                         const std::string& model = "m1") {
  Sample sample;
  if (tokens.empty()) {
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(seed) * 100 + i);
  }
  sample.parts.tokens = std::move(tokens);
  artifact::Manifest& manifest = sample.parts.manifest;
  manifest.identity.SetCompat("model.sha256", model);
  manifest.identity.SetCompat("cache.type_k", "f16");
  manifest.identity.SetBuild("engine.build", "b1");
  manifest.n_tokens = sample.parts.tokens.size();
  manifest.n_image_tokens = sample.parts.tokens.size();
  manifest.model_name = "toy";
  manifest.created = "2026-01-02T03:04:05Z";
  manifest.producer = "kvgraft test";
  manifest.schedule.kind = "exact";
  manifest.schedule.row_quantum = 8;
  manifest.schedule.attention = "plain";
  manifest.schedule.n_ubatch = 512;
  sample.image.resize(image_bytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (uint8_t& byte : sample.image) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<uint8_t>(state);
  }
  return sample;
}

inline uint64_t FileBytesOf(Sample& sample) {
  const Result<uint64_t> bytes = artifact::FileBytes(sample.parts, sample.image.size());
  return bytes.ok() ? *bytes : 0;
}

inline std::string CompatOf(const Sample& sample) {
  return sample.parts.manifest.identity.CompatId();
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    // In memory where there is such a folder: these tests sync thousands of small files.
    const std::string parent = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir();
    std::string pattern = parent + "/kvgstore.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
    options_.root = base_ + "/store";
    options_.free_floor_bytes = 0;
  }
  void TearDown() override {
    store_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  // Closes and opens again.
  void Open() {
    store_.reset();
    Result<std::unique_ptr<Store>> opened = Store::Open(options_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    store_ = std::move(opened).value();
  }
  Entry MustPut(uint32_t seed, std::string_view name = "", size_t image_bytes = 3000) {
    Sample sample = MakeSample(seed, image_bytes);
    Result<Entry> entry = store_->Put(sample.parts, sample.image, name);
    EXPECT_TRUE(entry.ok()) << entry.status().message();
    return entry.ok() ? std::move(entry).value() : Entry{};
  }
  std::vector<std::string> Ids() {
    std::vector<std::string> ids;
    Result<std::vector<Entry>> entries = store_->List();
    EXPECT_TRUE(entries.ok());
    if (entries.ok()) {
      for (const Entry& entry : *entries) ids.push_back(entry.id);
    }
    return ids;
  }
  // Paths of all regular files below a folder of the store.
  std::vector<std::string> FilesIn(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code error;
    for (const auto& item :
         std::filesystem::recursive_directory_iterator(options_.root + "/" + folder, error)) {
      if (!item.is_directory()) files.push_back(item.path().string());
    }
    return files;
  }
  // What du sums over the objects.
  uint64_t BytesOnDisk() {
    uint64_t bytes = 0;
    for (const std::string& file : FilesIn("objects")) bytes += std::filesystem::file_size(file);
    return bytes;
  }
  void Overwrite(const std::string& path, uint64_t offset, std::string_view bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.is_open()) << path;
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  std::string base_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

inline mode_t ModeOf(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? (info.st_mode & 07777) : 0;
}

}  // namespace kvgraft::store
