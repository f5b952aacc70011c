// For tests of this module and of what uses it: artifacts of a context, and a file taken apart, to
// be changed and put together again.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/file.h"
#include "kvgraft/engine/engine.h"
#include "kvgraft/exchange/planes_file.h"

namespace kvgraft::exchange::testing {

// What the context holds, with tokens up to `tokens` (the image's first).
inline artifact::Parts PartsOf(engine::Context& context, std::vector<engine::Token> tokens) {
  artifact::Parts parts;
  parts.tokens = std::move(tokens);
  parts.text = "The text of it.\n";
  artifact::Manifest& m = parts.manifest;
  m.name = "sample";
  m.identity = context.identity();
  m.n_tokens = parts.tokens.size();
  m.n_image_tokens = static_cast<uint64_t>(context.n_past());
  m.schedule = {.kind = "exact", .row_quantum = 8, .attention = "plain", .verified = true};
  m.model_name = "a model";
  return parts;
}

inline std::vector<uint8_t> ImageOf(engine::Context& context) {
  std::vector<uint8_t> image(context.ImageBytes().value());
  EXPECT_TRUE(context.SaveImage(image).ok());
  return image;
}

// The exported file's bytes; none after a failure, which is the test's.
inline std::vector<uint8_t> ExportOf(engine::Context& context, const engine::Model& model,
                                     artifact::Parts parts, ByteSpan image) {
  auto kvg = artifact::Encode(parts, image);
  EXPECT_TRUE(kvg.ok()) << kvg.status().message();
  if (!kvg.ok()) return {};
  const auto reader = artifact::Reader::FromBytes(*kvg, "test");
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  const std::string path = ::testing::TempDir() + "/kvgraft-exchange-test-" +
                           std::to_string(reinterpret_cast<uintptr_t>(&parts));
  auto out = AtomicFile::Create(path, ::testing::TempDir());
  EXPECT_TRUE(out.ok()) << out.status().message();
  const auto exported = ExportPlanes(context, model, *reader, &*out);
  EXPECT_TRUE(exported.ok()) << exported.status().message();
  if (!exported.ok()) return {};
  EXPECT_TRUE(out->Commit().ok());
  const auto file = ReadFile(path, 1u << 30);
  EXPECT_TRUE(file.ok());
  std::remove(path.c_str());
  EXPECT_EQ(file->size(), exported->file_bytes);
  return {file->begin(), file->end()};
}

// A file's tensors and metadata, each to be changed.
struct Apart {
  explicit Apart(ByteSpan file) {
    const auto view = SafetensorsView::Parse(file, "apart");
    EXPECT_TRUE(view.ok()) << view.status().message();
    metadata = view->metadata();
    for (const Tensor& t : view->tensors()) {
      tensors.push_back(t);
      const ByteSpan bytes = view->data(t);
      data[t.name] = {bytes.begin(), bytes.end()};
    }
  }
  Tensor& Find(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors[0];
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  }
  std::vector<uint8_t> File() const {
    std::vector<Tensor> all = tensors;
    auto file = EncodeHeader(&all, metadata);
    EXPECT_TRUE(file.ok()) << file.status().message();
    for (const Tensor& t : all) {
      const std::vector<uint8_t>& bytes = data.at(t.name);
      file->insert(file->end(), bytes.begin(), bytes.end());
    }
    return *file;
  }
  Metadata metadata;
  std::vector<Tensor> tensors;
  std::map<std::string, std::vector<uint8_t>> data;
};

}  // namespace kvgraft::exchange::testing
