#include "kvgraft/app/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "kvgraft/app/models.h"
#include "kvgraft/app/runtime.h"

namespace kvgraft::app {
namespace {

using ::testing::HasSubstr;

Environment Variables(std::map<std::string, std::string> values) {
  values.emplace("HOME", "/users/ane");
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

TEST(ParseBytes, UnitsOfTwoAndOfTen) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("4096B"), 4096u);
  EXPECT_EQ(*ParseBytes("1k"), 1024u);
  EXPECT_EQ(*ParseBytes("20GiB"), 20ull << 30);
  EXPECT_EQ(*ParseBytes("1.5G"), 3ull << 29);
  EXPECT_EQ(*ParseBytes("500 MB"), 500'000'000u);
  EXPECT_EQ(*ParseBytes("2T"), 2ull << 40);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "G", "-1", "1X", "1GiBs", "1e3", "nan", "inf", "0x10", "9999999P", "1 2", "1.2.3"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Config, PathsFollowFlagThenVariableThenXdgThenHome) {
  auto config = MakeConfig({}, Variables({}));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->store_root, "/users/ane/.local/share/kvgraft/store");
  EXPECT_EQ(config->models_dir, "/users/ane/.local/share/kvgraft/models");
  EXPECT_EQ(config->cache_dir, "/users/ane/.cache/kvgraft");

  std::map<std::string, std::string> variables = {{"XDG_DATA_HOME", "/d"},
                                                  {"XDG_CACHE_HOME", "/c"}};
  EXPECT_EQ(MakeConfig({}, Variables(variables))->store_root, "/d/kvgraft/store");
  EXPECT_EQ(MakeConfig({}, Variables(variables))->cache_dir, "/c/kvgraft");
  // The XDG rule: relative paths there are ignored.
  EXPECT_EQ(MakeConfig({}, Variables({{"XDG_DATA_HOME", "d"}}))->store_root,
            "/users/ane/.local/share/kvgraft/store");

  variables["KVGRAFT_STORE"] = "/s";
  EXPECT_EQ(MakeConfig({}, Variables(variables))->store_root, "/s");
  Flags flags;
  flags.store = "/flag";
  EXPECT_EQ(MakeConfig(flags, Variables(variables))->store_root, "/flag");
}

TEST(Config, WithoutAHomeItSaysWhatToSet) {
  auto config = MakeConfig({}, [](const std::string&) { return std::nullopt; });
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(config.status().message(), HasSubstr("KVGRAFT_STORE"));
}

TEST(Config, TwinsOfLlamaCpp) {
  auto config = MakeConfig({}, Variables({{"LLAMA_ARG_MODEL", "m.gguf"},
                                          {"LLAMA_ARG_CTX_SIZE", "777"},
                                          {"LLAMA_ARG_THREADS", "3"},
                                          {"LLAMA_ARG_UBATCH", "128"},
                                          {"LLAMA_ARG_FLASH_ATTN", "on"},
                                          {"LLAMA_ARG_CACHE_TYPE_K", "q8_0"},
                                          {"LLAMA_ARG_SWA_FULL", "0"},
                                          {"LLAMA_ARG_ROPE_FREQ_BASE", "10000.5"}}));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->model, "m.gguf");
  EXPECT_EQ(config->n_ctx, 777u);
  EXPECT_EQ(config->n_threads, 3u);
  EXPECT_EQ(config->n_ubatch, 128u);
  EXPECT_EQ(config->attention, engine::Attention::kOn);
  EXPECT_EQ(config->type_k, "q8_0");
  EXPECT_EQ(config->type_v, "f16");
  EXPECT_FALSE(config->swa_full);
  EXPECT_EQ(config->rope_freq_base, 10000.5f);
}

// lmstudio-bug-tracker#1764: an embedder had no way to set the cache's size.
TEST(Config, EveryBudgetHasAFlagAndAVariable) {
  auto config = MakeConfig({}, Variables({{"KVGRAFT_BUDGET", "1K"}, {"KVGRAFT_FREE_FLOOR", "2K"}}));
  EXPECT_EQ(config->budget_bytes, 1024u);
  EXPECT_EQ(config->free_floor_bytes, 2048u);
  Flags flags;
  flags.budget = "3K";
  flags.free_floor = "0";
  config = MakeConfig(flags, Variables({{"KVGRAFT_BUDGET", "1K"}, {"KVGRAFT_FREE_FLOOR", "2K"}}));
  EXPECT_EQ(config->budget_bytes, 3072u);
  EXPECT_EQ(config->free_floor_bytes, 0u);
}

// LMCache#4725: a misspelt setting was silently the default.
TEST(Config, MessagesNameTheFlagOrTheVariableAndTheValue) {
  Flags flags;
  flags.ctx_size = "many";
  auto config = MakeConfig(flags, Variables({}));
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(config.status().message(), HasSubstr("-c: "));
  EXPECT_THAT(config.status().message(), HasSubstr("'many'"));
  for (const char* name : {"LLAMA_ARG_THREADS", "KVGRAFT_BUDGET", "LLAMA_ARG_FLASH_ATTN",
                           "LLAMA_ARG_SWA_FULL", "LLAMA_ARG_ROPE_FREQ_SCALE"}) {
    config = MakeConfig({}, Variables({{name, "?"}}));
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(config.status().message(), HasSubstr(name));
  }
}

TEST(Config, AdaptersKeepTheirScales) {
  Flags flags;
  flags.lora = {"a"};
  flags.lora_scaled = {{"b", "0.5"}};
  auto config = MakeConfig(flags, Variables({}));
  ASSERT_EQ(config->adapters.size(), 2u);
  EXPECT_EQ(config->adapters[0].scale, 1.0f);
  EXPECT_EQ(config->adapters[1].path, "b");
  EXPECT_EQ(config->adapters[1].scale, 0.5f);
  flags.lora_scaled = {{"b", "x"}};
  EXPECT_EQ(MakeConfig(flags, Variables({})).status().code(), Code::kInvalidArgument);
}

TEST(UsableCores, AtLeastOne) { EXPECT_GE(UsableCores(), 1u); }

TEST(Toy, OptionsInTheModelName) {
  EXPECT_TRUE(IsToyModel("toy"));
  EXPECT_TRUE(IsToyModel("toy:7"));
  EXPECT_FALSE(IsToyModel("toyota"));
  EXPECT_EQ(ParseToy("toy:7")->weight_seed, 7u);
  EXPECT_EQ(ParseToy("toy:7,window=96,build=x")->sliding_window, 96u);
  EXPECT_EQ(ParseToy("toy:7,window=96,build=x")->build, "x");
  EXPECT_TRUE(ParseToy("toy:fail_load")->fail_load_image);
  for (const char* name : {"toy:x", "toy:1,window", "toy:1,window=x", "toy:1,,", "toy:1,2"}) {
    EXPECT_EQ(ParseToy(name).status().code(), Code::kInvalidArgument) << name;
  }
}

TEST(ResolveModel, ShortNamesAndPaths) {
  Config config;
  config.models_dir = ::testing::TempDir() + "/no-models";
  EXPECT_EQ(ResolveModel(config, "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ResolveModel(config, "a b").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ResolveModel(config, "./none.gguf").status().code(), Code::kNotFound);
  auto missing = ResolveModel(config, "smollm2-135m");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("kvgraft models pull smollm2-135m"));
}

}  // namespace
}  // namespace kvgraft::app
