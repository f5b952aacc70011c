// States of every kind through a safetensors file and back: the same image, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "kvgraft/exchange/key_order.h"
#include "kvgraft/exchange/planes_file.h"
#include "kvgraft/exchange/testing.h"
#include "kvgraft/math/half.h"
#include "tests/models/models.h"

namespace kvgraft {
namespace {

using engine::Attention;
using engine::Schedule;
using engine::Token;
using exchange::testing::Apart;
using testing::LoadTiny;
using testing::NewContextOrFail;
using testing::RandomTokens;
using testing::SaveOrFail;

struct Cache {
  const char *k, *v;
  Attention attention;
};

engine::ContextOptions Options(const Cache& cache) {
  engine::ContextOptions options = testing::TinyContext(512);
  options.attention = cache.attention;
  options.type_k = cache.k;
  options.type_v = cache.v;
  return options;
}

class ExchangeModels : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tiny, ExchangeModels,
                         ::testing::Values("gqa", "qwen2", "gemma3", "mla", "dsa", "partial",
                                           "yarn", "mamba", "lfm2"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(ExchangeModels, ThereAndBackIsTheSameImage) {
  const auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  const Cache caches[] = {{"f16", "f16", Attention::kOff},
                          {"f16", "f16", Attention::kOn},
                          {"bf16", "f32", Attention::kOff},
                          {"q8_0", "q8_0", Attention::kOn}};
  int n_done = 0;
  for (const Cache& cache : caches) {
    const bool quantised = cache.k[0] == 'q';
    if (quantised && std::string(GetParam()) == "mla") continue;
    auto context = model->NewContext(Options(cache));
    if (!context.ok()) continue;  // the engine has no such cache for this model
    const std::vector<Token> tokens = RandomTokens(192, 11);
    KVG_ASSERT_OK((*context)->Decode(tokens, Schedule::kExact, 0, nullptr));
    const std::vector<uint8_t> image = SaveOrFail(**context);
    const artifact::Parts parts = exchange::testing::PartsOf(**context, tokens);
    const std::vector<uint8_t> file = exchange::testing::ExportOf(**context, *model, parts, image);
    ASSERT_FALSE(file.empty());

    // A context of its own, smaller than the state.
    engine::ContextOptions small = Options(cache);
    small.n_ctx = 64;
    small.n_ubatch = 64;
    const auto other = NewContextOrFail(*model, small);
    ASSERT_TRUE(other);
    const auto back = exchange::ImportPlanes(*other, *model, file, "x", "test");
    ASSERT_TRUE(back.ok()) << GetParam() << ": " << back.status().message();
    EXPECT_TRUE(back->identical) << GetParam() << " " << cache.k << ": " << back->difference;
    EXPECT_TRUE(std::ranges::equal(back->image, image));
    EXPECT_EQ(back->parts.manifest.tier, "exact");
    ++n_done;
  }
  EXPECT_GE(n_done, 2);
}

// Names, shapes and order as docs/exchange.md has them.
TEST(ExchangeModels, WhatTheFilesHold) {
  const auto apart = [](const char* kind, const Cache& cache) {
    const auto model = LoadTiny(kind);
    const auto context = NewContextOrFail(*model, Options(cache));
    const std::vector<Token> tokens = RandomTokens(192, 11);
    EXPECT_TRUE(context->Decode(tokens, Schedule::kExact, 0, nullptr).ok());
    return Apart(exchange::testing::ExportOf(
        *context, *model, exchange::testing::PartsOf(*context, tokens), SaveOrFail(*context)));
  };
  using Shape = std::vector<uint64_t>;
  Apart gqa = apart("gqa", {"f16", "f16", Attention::kOff});
  EXPECT_EQ(gqa.Find("layers.1.key").shape, (Shape{2, 192, 32}));
  EXPECT_EQ(gqa.Find("layers.1.value").dtype, "F16");
  EXPECT_EQ(gqa.metadata.at("kvgraft.key_order"), "half-split");
  EXPECT_NE(gqa.metadata.at("kvgraft.streams").find("\"permuted\":[0,32]"), std::string::npos);
  EXPECT_NE(gqa.metadata.at("kvgraft.ropes").find("interleaved"), std::string::npos);

  Apart qwen = apart("qwen2", {"q8_0", "q8_0", Attention::kOn});
  EXPECT_EQ(qwen.Find("layers.0.key").dtype, "F32");
  EXPECT_EQ(qwen.metadata.at("kvgraft.streams").find("\"permuted\":["), std::string::npos);

  Apart gemma = apart("gemma3", {"f16", "f16", Attention::kOff});
  EXPECT_EQ(gemma.Find("positions").shape, Shape{192});
  const uint64_t window = gemma.Find("positions.window").shape[0];
  EXPECT_LT(window, 192u);
  EXPECT_EQ(gemma.Find("layers.0.key").shape[1], window);
  EXPECT_EQ(gemma.Find("layers.5.key").shape[1], 192u);

  Apart mla = apart("mla", {"f16", "f16", Attention::kOff});
  EXPECT_EQ(mla.Find("layers.0.mla_latent").shape, (Shape{1, 192, 64}));
  EXPECT_EQ(mla.Find("layers.0.mla_rope_key").shape, (Shape{1, 192, 16}));
}

// The state of 192 tokens, taken apart.
Apart ExportOfTiny(engine::Context& context, const engine::Model& model) {
  const std::vector<Token> tokens = RandomTokens(192, 11);
  KVG_EXPECT_OK(context.Decode(tokens, Schedule::kExact, 0, nullptr));
  return Apart(exchange::testing::ExportOf(
      context, model, exchange::testing::PartsOf(context, tokens), SaveOrFail(context)));
}

// A window that lacks cells would be taken for the whole; so would the keys that an indexer looks
// at, all of which must be there.
TEST(ExchangeModels, TablesReachAsFarBackAsTheModelLooks) {
  for (const auto& [kind, table, says] :
       {std::tuple{"gemma3", "positions.window", "window reaches back"},
        {"dsa", "positions.indexer", "cells must reach back to 0"}}) {
    const auto model = LoadTiny(kind);
    const auto context = NewContextOrFail(*model, Options({"f16", "f16", Attention::kOff}));
    Apart file = ExportOfTiny(*context, *model);
    const size_t was = file.Find(table).shape[0], now = 40;
    for (exchange::Tensor& t : file.tensors) {
      const bool list = t.name == table;
      if (!list && (t.shape.size() != 3 || t.shape[1] != was)) continue;
      const size_t row = list ? 4 : 2 * t.shape[2];  // one head
      t.shape[list ? 0 : 1] = now;
      std::vector<uint8_t>& bytes = file.data[t.name];
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<int64_t>((was - now) * row));
    }
    const auto back = exchange::ImportPlanes(*context, *model, file.File(), "x", "test");
    ASSERT_FALSE(back.ok()) << kind;
    EXPECT_NE(back.status().message().find(says), std::string::npos) << back.status().message();
  }
}

// A recurrent state is that of one position, and a hybrid's two parts end with the same token.
TEST(ExchangeModels, RecurrentStatesStandAtTheLastToken) {
  for (const char* kind : {"mamba", "lfm2"}) {
    const auto model = LoadTiny(kind);
    const auto context = NewContextOrFail(*model, Options({"f16", "f16", Attention::kOff}));
    const Apart file = ExportOfTiny(*context, *model);
    for (const int32_t pos : {-1, 63, 255}) {
      Apart other = file;
      std::memcpy(other.data["positions.recurrent"].data(), &pos, sizeof pos);
      const auto back = exchange::ImportPlanes(*context, *model, other.File(), "x", "test");
      if (pos == 63 && std::string(kind) == "mamba") {
        // Whole blocks, fewer than the tokens: not what was exported, and it says so.
        ASSERT_TRUE(back.ok()) << back.status().message();
        EXPECT_FALSE(back->identical);
        EXPECT_EQ(back->parts.manifest.tier, exchange::kImportedTier);
      } else {
        EXPECT_FALSE(back.ok()) << kind << " " << pos;
      }
    }
    Apart two = file;
    two.Find("positions.recurrent").shape = {2};
    std::vector<uint8_t>& bytes = two.data["positions.recurrent"];
    bytes.insert(bytes.begin(), {190, 0, 0, 0});
    EXPECT_FALSE(exchange::ImportPlanes(*context, *model, two.File(), "x", "test").ok()) << kind;
  }
}

}  // namespace
}  // namespace kvgraft
