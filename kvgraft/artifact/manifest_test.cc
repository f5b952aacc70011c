#include "kvgraft/artifact/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kvgraft/artifact/json_check.h"
#include "kvgraft/artifact/testing.h"

namespace kvgraft::artifact {
namespace {

using nlohmann::json;

json Valid() {
  Parts parts = testing::FullParts();
  parts.manifest.id = std::string(64, 'f');
  return json::parse(ManifestToJson(parts.manifest).value());
}

Code Parse(const json& value) { return ManifestFromJson(value.dump()).status().code(); }

TEST(ManifestTest, TheTextIsAlwaysTheSame) {
  Parts parts = testing::FullParts();
  parts.manifest.id = std::string(64, 'f');
  const std::string text = ManifestToJson(parts.manifest).value();
  const auto back = ManifestFromJson(text);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(ManifestToJson(*back).value(), text);
  EXPECT_EQ(text.substr(0, 12), R"({"created":")");
}

TEST(ManifestTest, RequiredMembersAreRequired) {
  for (const char* name : {"id", "tier", "identity", "n_tokens", "n_image_tokens", "schedule"}) {
    json value = Valid();
    value.erase(name);
    const auto parsed = ManifestFromJson(value.dump());
    EXPECT_EQ(parsed.status().code(), Code::kCorrupt) << name;
    EXPECT_NE(parsed.status().message().find(name), std::string::npos) << parsed.status().message();
  }
  for (const char* path :
       {"/identity/compat", "/identity/build", "/schedule/kind", "/schedule/row_quantum",
        "/schedule/attention", "/schedule/n_ubatch", "/schedule/verified", "/probe/suffix",
        "/probe/padded_sha256", "/probe/single_token", "/probe/single_sha256",
        "/probe/single_threads"}) {
    json value = Valid();
    const json::json_pointer at(path);
    value[at.parent_pointer()].erase(at.back());
    EXPECT_EQ(Parse(value), Code::kCorrupt) << path;
  }
}

TEST(ManifestTest, OptionalMembersHaveDefaults) {
  json value = Valid();
  for (const char* name : {"name", "probe", "parent", "model_name", "created", "producer",
                           "prompt_kind", "prompt_suffix", "prefill_us"}) {
    value.erase(name);
  }
  const auto m = ManifestFromJson(value.dump());
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->prompt_kind, "raw");
  EXPECT_EQ(m->probe, Probe{});
  EXPECT_EQ(m->prefill_us, 0u);
}

// Artifacts without it, all older ones among them, keep their bytes; the page's limits hold.
TEST(ManifestTest, TailLossIsOptional) {
  json value = Valid();
  EXPECT_FALSE(value.contains("tail_loss"));
  const uint64_t n_tokens = value["n_tokens"];
  ASSERT_GE(n_tokens, 2u);
  value["tail_loss"] = {2345678, 0};
  const auto m = ManifestFromJson(value.dump());
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->tail_loss, (std::vector<uint64_t>{2345678, 0}));
  EXPECT_EQ(json::parse(ManifestToJson(*m).value()), value);
  for (const json& bad : {json(3), json{1.5}, json{-1}, json{1ull << 53}, json{"1"},
                          json(std::vector<int>(65, 1)), json(std::vector<int>(n_tokens + 1, 1))}) {
    value["tail_loss"] = bad;
    EXPECT_EQ(Parse(value), Code::kCorrupt) << bad;
  }
}

TEST(ManifestTest, UnknownMembersAreIgnored) {
  json value = Valid();
  value["later"] = {{"a", {1, 2.5, nullptr, "x"}}};
  value["schedule"]["later"] = true;
  value["probe"]["later"] = -1;
  EXPECT_EQ(Parse(value), Code::kOk);
}

// Every member with every other JSON type, and numbers out of their range.
TEST(ManifestTest, AnotherTypeIsRefused) {
  const std::vector<json> values = {
      nullptr, true, -1, 1.5, "text", json::array(), json::object(), uint64_t{1} << 63};
  for (const char* path : {"/id",
                           "/name",
                           "/tier",
                           "/identity",
                           "/identity/compat",
                           "/identity/compat/model.sha256",
                           "/identity/build",
                           "/identity/build/engine.version",
                           "/n_tokens",
                           "/n_image_tokens",
                           "/schedule",
                           "/schedule/kind",
                           "/schedule/row_quantum",
                           "/schedule/attention",
                           "/schedule/n_ubatch",
                           "/schedule/verified",
                           "/probe",
                           "/probe/suffix",
                           "/probe/suffix/0",
                           "/probe/padded_sha256",
                           "/probe/single_token",
                           "/probe/single_sha256",
                           "/probe/single_threads",
                           "/parent",
                           "/model_name",
                           "/created",
                           "/producer",
                           "/prompt_kind",
                           "/prompt_suffix",
                           "/prefill_us"}) {
    const json::json_pointer at(path);
    for (const json& other : values) {
      json value = Valid();
      if (value[at].type() == other.type() && other != json(uint64_t{1} << 63)) continue;
      // Empty compat and build sets are allowed.
      if (other.is_object() && value[at].is_object()) continue;
      value[at] = other;
      EXPECT_EQ(Parse(value), Code::kCorrupt) << path << " = " << other.dump();
    }
  }
}

TEST(ManifestTest, ValuesOutOfTheirRangeAreRefused) {
  const auto refuses = [](const char* path, const json& other) {
    json value = Valid();
    value[json::json_pointer(path)] = other;
    EXPECT_EQ(Parse(value), Code::kCorrupt) << path << " = " << other.dump();
  };
  refuses("/n_tokens", kMaxTokens + 1);
  refuses("/n_image_tokens", 8);
  refuses("/schedule/row_quantum", 1ull << 32);
  refuses("/schedule/n_ubatch", 1ull << 32);
  refuses("/probe/single_token", 1ull << 31);
  refuses("/probe/suffix/0", 1ull << 31);
  refuses("/probe/suffix", std::vector<int>(65, 1));
  refuses("/prefill_us", 1ull << 53);
  refuses("/id", std::string(64, 'F'));
  refuses("/id", "");
  refuses("/tier", "");
  refuses("/tier", std::string(33, 'a'));
  refuses("/created", "2026-11-30 16:24:09");
  refuses("/identity/compat", json{{"UPPER", "x"}});
  refuses("/identity/compat", json{{"", "x"}});
  refuses("/identity/compat", json{{"a", "line\nbreak"}});
  refuses("/identity/build", json{{"a", std::string(4097, 'x')}});
  json many = json::object();
  for (int i = 0; i < 1025; ++i) many["f" + std::to_string(i)] = "x";
  refuses("/identity/build", many);
}

TEST(ManifestTest, BrokenJsonIsRefused) {
  const std::string good = Valid().dump();
  EXPECT_TRUE(ManifestFromJson(good).ok());
  EXPECT_TRUE(ManifestFromJson(" " + good + "\n").ok());
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(ManifestFromJson(good.substr(0, n)).status().code(), Code::kCorrupt) << n;
  }
  const std::string nul(1, '\0');
  for (const std::string& bad :
       {good + "x", good + good, good + nul, good + nul + "x", "\xef\xbb\xbf" + good,
        std::string("null"), std::string("[]"), std::string("1"),
        "{\"id\":\"x\"," + good.substr(1),                              // a member twice
        good.substr(0, good.size() - 1) + ",}",                         // comma at the end
        good.substr(0, good.size() - 1) + ",\"n\":NaN}",                // no JSON
        good.substr(0, good.size() - 1) + ",\"n\":1e999}",              // no number
        good.substr(0, good.size() - 1) + ",\"n\":\"\xff\"}",           // no UTF-8
        good.substr(0, good.size() - 1) + ",\"n\":\"\\ud800\"}",        // half a surrogate pair
        good.substr(0, good.size() - 1) + ",\"o\":{\"a\":1,\"a\":1}}",  // twice, in a part ignored
        "/* c */" + good}) {
    const auto parsed = ManifestFromJson(bad);
    EXPECT_EQ(parsed.status().code(), Code::kCorrupt) << bad;
  }
}

TEST(ManifestTest, DeepNestingIsRefusedAndTakesNoStack) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(CheckJson(nested(8), 8).ok());
  EXPECT_EQ(CheckJson(nested(9), 8).code(), Code::kCorrupt);
  EXPECT_EQ(CheckJson(nested(2000000), 8).code(), Code::kCorrupt);
  EXPECT_EQ(CheckJson(std::string(4000000, '['), 8).code(), Code::kCorrupt);
  const std::string text = Valid().dump();
  const std::string open = text.substr(0, text.size() - 1) + ",\"n\":";
  EXPECT_TRUE(ManifestFromJson(open + nested(7) + "}").ok());
  EXPECT_EQ(ManifestFromJson(open + nested(8) + "}").status().code(), Code::kCorrupt);
}

TEST(ManifestTest, SameMemberNameInDifferentObjectsIsFine) {
  EXPECT_TRUE(CheckJson(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", 8).ok());
  EXPECT_FALSE(CheckJson(R"({"a":{"b":1,"b":2}})", 8).ok());
}

}  // namespace
}  // namespace kvgraft::artifact
