// Models for tests: tiny ones that the build makes (tiny_gguf.py), and real ones where they have
// been pulled. What needs a real model that is not there skips, and says so.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kvgraft/core/file.h"
#include "kvgraft/engine/engine.h"
#include "kvgraft/engine_llama/engine_llama.h"

namespace kvgraft::testing {

inline std::string TinyPath(const std::string& kind) {
  return std::string(KVGRAFT_BINARY_DIR) + "/tiny/tiny-" + kind + ".gguf";
}

inline std::unique_ptr<engine::Model> LoadOrFail(engine_llama::ModelOptions options) {
  Result<std::unique_ptr<engine::Model>> model = engine_llama::LoadModel(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(model).value() : nullptr;
}

inline std::unique_ptr<engine::Model> LoadTiny(const std::string& kind) {
  return LoadOrFail({.path = TinyPath(kind)});
}

inline std::unique_ptr<engine::Context> NewContextOrFail(engine::Model& model,
                                                         const engine::ContextOptions& options) {
  Result<std::unique_ptr<engine::Context>> context = model.NewContext(options);
  EXPECT_TRUE(context.ok()) << context.status().message();
  return context.ok() ? std::move(context).value() : nullptr;
}

// Where `kvgraft models pull NAME` puts a model; "" when it is not there.
inline std::string RealPath(const std::string& name) {
  std::string folder;
  if (const char* dir = std::getenv("KVGRAFT_MODELS"); dir != nullptr && *dir != 0) {
    folder = dir;
  } else if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != 0) {
    folder = std::string(data) + "/kvgraft/models";
  } else if (const char* home = std::getenv("HOME")) {
    folder = std::string(home) + "/.local/share/kvgraft/models";
  }
  const std::string path = folder + "/" + name + ".gguf";
  return FileExists(path) ? path : "";
}

// A context for tiny models, plain attention, batches padded to 8 rows.
inline engine::ContextOptions TinyContext(uint32_t n_ctx = 1024) {
  engine::ContextOptions options;
  options.n_ctx = n_ctx;
  options.n_ubatch = 256;
  options.n_threads = 2;
  return options;
}

// Bytes of the tiny models' vocabulary.
inline std::vector<engine::Token> RandomTokens(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<engine::Token> tokens(n);
  for (engine::Token& t : tokens) t = static_cast<engine::Token>(3 + random() % 256);
  return tokens;
}

inline std::vector<uint8_t> SaveOrFail(engine::Context& context) {
  Result<size_t> bytes = context.ImageBytes();
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  std::vector<uint8_t> image(bytes.ok() ? *bytes : 0);
  const Status saved = context.SaveImage(image);
  EXPECT_TRUE(saved.ok()) << saved.message();
  return image;
}

}  // namespace kvgraft::testing

#define KVG_EXPECT_OK(expr)                       \
  do {                                            \
    const ::kvgraft::Status kvg_s_ = (expr);      \
    EXPECT_TRUE(kvg_s_.ok()) << kvg_s_.message(); \
  } while (0)
#define KVG_ASSERT_OK(expr)                       \
  do {                                            \
    const ::kvgraft::Status kvg_s_ = (expr);      \
    ASSERT_TRUE(kvg_s_.ok()) << kvg_s_.message(); \
  } while (0)
