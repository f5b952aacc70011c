#include "kvgraft/exchange/planes_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kvgraft/engine/toy_engine.h"
#include "kvgraft/exchange/testing.h"

namespace kvgraft::exchange {
namespace {

using engine::Attention;
using engine::Token;
using testing::Apart;
using testing::ExportOf;
using ::testing::HasSubstr;
using testing::ImageOf;
using testing::PartsOf;

constexpr size_t kTokens = 100;

std::vector<Token> Tokens(size_t n = kTokens) {
  std::vector<Token> tokens = {engine::kToyBos};
  while (tokens.size() < n) tokens.push_back(static_cast<Token>(tokens.size() * 37 % 250));
  return tokens;
}

// A toy with a state, and the file of it.
struct Toy {
  explicit Toy(const engine::ToyOptions& options = {}, Attention attention = Attention::kOff,
               size_t n = kTokens)
      : model(engine::NewToyModel(options)) {
    engine::ContextOptions context_options;
    context_options.n_ctx = 256;
    context_options.n_threads = 1;
    context_options.attention = attention;
    context = std::move(model->NewContext(context_options)).value();
    parts = PartsOf(*context, Tokens(n));
    EXPECT_TRUE(context->Decode(parts.tokens, engine::Schedule::kExact, 0, nullptr).ok());
    parts.manifest.n_image_tokens = n;
    image = ImageOf(*context);
  }
  std::vector<uint8_t> Export() { return ExportOf(*context, *model, parts, image); }
  Result<Imported> Import(ByteSpan file) {
    return ImportPlanes(*context, *model, file, "x.safetensors", "test 2");
  }
  std::string Id() const {
    return artifact::ContentId(parts.manifest.identity, parts.tokens, {},
                               parts.manifest.n_image_tokens, image);
  }
  void ExpectRefused(ByteSpan file, const std::string& says, Code code = Code::kCorrupt) {
    const auto imported = Import(file);
    ASSERT_FALSE(imported.ok()) << says;
    EXPECT_EQ(imported.status().code(), code) << imported.status().message();
    EXPECT_THAT(imported.status().message(), HasSubstr(says));
    EXPECT_THAT(imported.status().message(), HasSubstr("x.safetensors"));
  }

  std::unique_ptr<engine::Model> model;
  std::unique_ptr<engine::Context> context;
  artifact::Parts parts;
  std::vector<uint8_t> image;
};

TEST(PlanesFile, ExportedAndImportedIsTheSameArtifact) {
  for (const uint32_t window : {0u, 64u}) {
    for (const Attention attention : {Attention::kOff, Attention::kOn}) {
      Toy toy({.sliding_window = window}, attention, 128);
      toy.parts.tokens.push_back('x');  // behind the image
      toy.parts.manifest.n_tokens = 129;
      const auto imported = toy.Import(toy.Export());
      ASSERT_TRUE(imported.ok()) << imported.status().message();
      EXPECT_TRUE(imported->identical) << imported->difference;
      EXPECT_TRUE(std::ranges::equal(imported->image, toy.image));
      const artifact::Manifest& m = imported->parts.manifest;
      EXPECT_EQ(m.id, toy.Id());
      EXPECT_EQ(m.tier, "exact");
      EXPECT_EQ(m.schedule, toy.parts.manifest.schedule);
      EXPECT_EQ(m.identity, toy.context->identity());
      EXPECT_EQ(m.name, "sample");
      EXPECT_EQ(imported->parts.tokens, toy.parts.tokens);
      EXPECT_EQ(imported->parts.text, toy.parts.text);
    }
  }
}

TEST(PlanesFile, WhatTheFileSays) {
  Toy toy;
  const Apart file(toy.Export());
  EXPECT_EQ(file.metadata.at("kvgraft.id"), toy.Id());
  EXPECT_EQ(file.metadata.at("kvgraft.tier"), "exact");
  EXPECT_EQ(file.metadata.at("kvgraft.key_order"), "half-split");
  EXPECT_EQ(file.metadata.at("kvgraft.keys_rotated"), "true");
  EXPECT_EQ(file.metadata.at("kvgraft.architecture"), toy.model->info().architecture);
  std::vector<std::string> names;
  for (const Tensor& t : file.tensors) names.push_back(t.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"tokens", "positions", "layers.0.key", "layers.0.value",
                                      "layers.1.key", "layers.1.value", "text"}));
  EXPECT_EQ(file.tensors[2].dtype, "F32");
  EXPECT_EQ(file.tensors[2].shape[0], 2u);
  EXPECT_EQ(file.tensors[2].shape[1], kTokens);
}

TEST(PlanesFile, WhatIsEditedIsNeverExact) {
  Toy toy;
  const std::vector<uint8_t> good = toy.Export();
  const auto edited = [&](const char* name, auto change) {
    Apart file(good);
    change(file);
    const auto imported = toy.Import(file.File());
    EXPECT_TRUE(imported.ok()) << name << ": " << imported.status().message();
    if (!imported.ok()) return;
    EXPECT_FALSE(imported->identical) << name;
    const artifact::Manifest& m = imported->parts.manifest;
    EXPECT_EQ(m.tier, "imported") << name;
    EXPECT_EQ(m.schedule.kind, "fast") << name;
    EXPECT_FALSE(m.schedule.verified) << name;
    EXPECT_EQ(m.producer, "test 2") << name;
    EXPECT_TRUE(m.probe.suffix.empty() && m.probe.padded_sha256.empty()) << name;
    // It is a sound artifact all the same.
    artifact::Parts parts = imported->parts;
    EXPECT_TRUE(artifact::Encode(parts, imported->image).ok()) << name;
  };
  edited("a number", [](Apart& f) { f.data["layers.1.value"][0] ^= 1; });
  edited("a token", [](Apart& f) { f.data["tokens"][4] ^= 1; });
  edited("no hash", [](Apart& f) { f.metadata.erase("kvgraft.image_sha256"); });
  edited("another hash",
         [](Apart& f) { f.metadata["kvgraft.image_sha256"] = std::string(64, 'a'); });
  edited("another id", [&](Apart& f) {
    std::string& manifest = f.metadata["kvgraft.manifest"];
    manifest.replace(manifest.find(toy.Id()), 64, std::string(64, 'a'));
  });
  edited("a tail", [](Apart& f) {
    f.Find("tokens").shape[0] += 1;
    f.data["tokens"].insert(f.data["tokens"].end(), {7, 0, 0, 0});
  });
  // Fewer cells: what a program that cuts a cache writes.
  edited("cut", [](Apart& f) {
    for (Tensor& t : f.tensors) {
      if (t.name == "text") continue;
      const bool list = t.shape.size() == 1;
      const size_t heads = list ? 1 : t.shape[0], row = 4 * (list ? 1 : t.shape[2]);
      std::vector<uint8_t> kept;
      for (size_t h = 0; h < heads; ++h) {
        const auto from = f.data[t.name].begin() + static_cast<int64_t>(h * kTokens * row);
        kept.insert(kept.end(), from, from + static_cast<int64_t>(60 * row));
      }
      f.data[t.name] = kept;
      t.shape[list ? 0 : 1] = 60;
    }
  });
}

TEST(PlanesFile, AnImportedStateStaysImported) {
  Toy toy;
  toy.parts.manifest.tier = "imported";
  const auto imported = toy.Import(toy.Export());
  ASSERT_TRUE(imported.ok());
  EXPECT_TRUE(imported->identical);
  EXPECT_EQ(imported->parts.manifest.tier, "imported");
}

TEST(PlanesFile, AnotherModelIsRefused) {
  Toy toy, other({.weight_seed = 9});
  other.ExpectRefused(toy.Export(), "model.sha256", Code::kMismatch);
  Toy flash({}, Attention::kOn);
  flash.ExpectRefused(toy.Export(), "cache.attention", Code::kMismatch);

  artifact::Parts parts = toy.parts;
  const auto kvg = artifact::Encode(parts, toy.image);
  const auto reader = artifact::Reader::FromBytes(*kvg, "test");
  auto out = AtomicFile::Create(::testing::TempDir() + "/never", ::testing::TempDir());
  EXPECT_EQ(ExportPlanes(*other.context, *other.model, *reader, &*out).status().code(),
            Code::kMismatch);
}

TEST(PlanesFile, AnArtifactWithoutCellsIsRefused) {
  Toy toy({.sliding_window = 64});
  ASSERT_TRUE(toy.context->Clear().ok());
  toy.parts.manifest.n_image_tokens = 0;
  const auto kvg = artifact::Encode(toy.parts, ImageOf(*toy.context));
  ASSERT_TRUE(kvg.ok());
  const auto reader = artifact::Reader::FromBytes(*kvg, "test");
  auto out = AtomicFile::Create(::testing::TempDir() + "/never", ::testing::TempDir());
  const Status status = ExportPlanes(*toy.context, *toy.model, *reader, &*out).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("no tokens"));
}

TEST(PlanesFile, EveryPrefixFails) {
  Toy toy;
  const std::vector<uint8_t> file = toy.Export();
  for (size_t n = 0; n < file.size(); n += n < 9000 ? 1 : 97) {
    EXPECT_FALSE(toy.Import(ByteSpan(file).first(n)).ok()) << n;
  }
}

TEST(PlanesFile, TensorsThatAreNotThisModels) {
  Toy toy;
  const std::vector<uint8_t> good = toy.Export();
  const auto refused = [&](const std::string& says, auto change, Code code = Code::kCorrupt) {
    Apart file(good);
    change(file);
    toy.ExpectRefused(file.File(), says, code);
  };
  for (const char* name : {"tokens", "positions", "layers.0.key", "layers.1.value"}) {
    refused(std::string("no tensor \"") + name, [&](Apart& f) { f.Remove(name); });
  }
  refused("8 tensors, of which only 7", [](Apart& f) {
    f.tensors.push_back({.name = "layers.2.key", .dtype = "U8", .shape = {0}});
    f.data["layers.2.key"] = {};
  });
  refused("is F32 [100, 2,", [](Apart& f) {
    std::swap(f.Find("layers.0.key").shape[0], f.Find("layers.0.key").shape[1]);
  });
  refused("expected F32", [](Apart& f) { f.Find("layers.0.key").dtype = "I32"; });
  refused("tokens\" is U32", [](Apart& f) { f.Find("tokens").dtype = "U32"; });
  refused("positions\" is F32", [](Apart& f) { f.Find("positions").dtype = "F32"; });
  refused("text\" is I8", [](Apart& f) { f.Find("text").dtype = "I8"; });
  refused("token -1 at index 2", [](Apart& f) {
    for (size_t i = 8; i < 12; ++i) f.data["tokens"][i] = 0xff;
  });
  refused("outside the vocabulary", [](Apart& f) { f.data["tokens"][10] = 1; });
  refused(
      "element 1 is 3", [](Apart& f) { f.data["positions"][4] = 3; }, Code::kUnsupported);
  refused(
      "element 0 is 1", [](Apart& f) { f.data["positions"][0] = 1; }, Code::kUnsupported);
  refused("not finite", [](Apart& f) {
    std::vector<uint8_t>& bytes = f.data["layers.0.key"];
    bytes[2] = 0x80;
    bytes[3] = 0x7f;
  });
  refused("positions of 100 tokens for 99", [](Apart& f) {
    f.Find("tokens").shape[0] = 99;
    f.data["tokens"].resize(4 * 99);
  });
  refused("0 elements", [](Apart& f) {
    f.Find("tokens").shape[0] = 0;
    f.data["tokens"].clear();
  });
}

TEST(PlanesFile, MetadataThatIsNotThisModels) {
  Toy toy;
  const std::vector<uint8_t> good = toy.Export();
  const auto refused = [&](const std::string& says, auto change, Code code) {
    Apart file(good);
    change(file.metadata);
    toy.ExpectRefused(file.File(), says, code);
  };
  const auto replace = [](std::string& text, const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << text;
    text.replace(text.find(from), from.size(), to);
  };
  refused(
      "kvgraft.format", [](Metadata& m) { m.erase("kvgraft.format"); }, Code::kUnsupported);
  refused(
      "kvgraft.format", [](Metadata& m) { m.clear(); }, Code::kUnsupported);
  refused(
      "is 2, this program reads 1", [](Metadata& m) { m["kvgraft.format"] = "2"; },
      Code::kUnsupported);
  refused(
      "no kvgraft.manifest", [](Metadata& m) { m.erase("kvgraft.manifest"); }, Code::kCorrupt);
  refused(
      "manifest", [](Metadata& m) { m["kvgraft.manifest"] = "{}"; }, Code::kCorrupt);
  refused(
      "no kvgraft.streams", [](Metadata& m) { m.erase("kvgraft.streams"); }, Code::kCorrupt);
  refused(
      "kvgraft.ropes", [](Metadata& m) { m["kvgraft.ropes"] = "[[[[[[]]]]]]"; }, Code::kCorrupt);
  refused(
      "0 entries in the file", [](Metadata& m) { m["kvgraft.ropes"] = "[]"; }, Code::kMismatch);
  refused(
      "no entries in the file", [](Metadata& m) { m["kvgraft.ropes"] = "{}"; }, Code::kMismatch);
  // Keys in another order, or rotated otherwise, are other numbers.
  refused(
      "order is \"interleaved\" in the file, \"half-split\" here",
      [&](Metadata& m) { replace(m["kvgraft.streams"], "half-split", "interleaved"); },
      Code::kMismatch);
  refused(
      "freq_scale is 0.5 in the file",
      [&](Metadata& m) { replace(m["kvgraft.ropes"], "\"freq_scale\":1.0", "\"freq_scale\":0.5"); },
      Code::kMismatch);
  refused(
      "rope is (absent)",
      [&](Metadata& m) { replace(m["kvgraft.streams"], "\"rope\"", "\"tier\""); }, Code::kMismatch);
}

// A window's state continues exactly only from a multiple of 64 tokens.
TEST(PlanesFile, WindowsEndWhereTheyMayEnd) {
  Toy toy({.sliding_window = 64}, Attention::kOff, 100);
  toy.ExpectRefused(toy.Export(), "multiple of 64", Code::kUnsupported);
}

}  // namespace
}  // namespace kvgraft::exchange
