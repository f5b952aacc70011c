#include "kvgraft/core/identity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kvgraft/core/hash.h"

namespace kvgraft {
namespace {

StateIdentity Example() {
  StateIdentity id;
  id.SetCompat("model.sha256", "aa");
  id.SetCompat("cache.type_k", "f16");
  id.SetCompat("cache.type_v", "f16");
  id.SetBuild("engine.build", "1");
  return id;
}

TEST(IdentityTest, FieldsStaySortedAndAreReplaced) {
  StateIdentity id = Example();
  id.SetCompat("cache.type_k", "q8_0");
  ASSERT_EQ(id.compat.size(), 3u);
  EXPECT_EQ(id.compat[0], (IdentityField{"cache.type_k", "q8_0"}));
  EXPECT_EQ(id.compat[2].name, "model.sha256");
  EXPECT_EQ(id.Get("engine.build"), "1");
  EXPECT_EQ(id.Get("nothing"), "");
}

// sglang#24758, vllm#49261: states of another model or revision were taken for this one's. The
// refusal names each differing field and both values.
TEST(IdentityTest, EveryDifferenceIsNamedWithBothValues) {
  const StateIdentity artifact = Example();
  StateIdentity here = Example();
  EXPECT_TRUE(CheckCompat(artifact, here).ok());
  here.SetCompat("model.sha256", "bb");
  here.SetCompat("rope.scaling", "yarn");
  const Status s = CheckCompat(artifact, here);
  EXPECT_EQ(s.code(), Code::kMismatch);
  for (const char* part :
       {"model.sha256 is aa in the artifact, bb here", "rope.scaling is (absent)", "yarn"}) {
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  }
  EXPECT_EQ(s.message().find('\n'), std::string::npos);
  EXPECT_NE(artifact.CompatId(), here.CompatId());
}

// A field that only the artifact has (written by a newer engine module) refuses as well.
TEST(IdentityTest, AFieldThatIsUnknownHereRefuses) {
  StateIdentity artifact = Example();
  artifact.SetCompat("cache.hadamard", "true");
  const auto diffs = DiffCompat(artifact, Example());
  ASSERT_EQ(diffs.size(), 1u);
  EXPECT_EQ(diffs[0].field, "cache.hadamard");
  EXPECT_EQ(diffs[0].here, "(absent)");
  EXPECT_EQ(CheckCompat(artifact, Example()).code(), Code::kMismatch);
}

// ik_llama.cpp#2212: refused although compatible. Build fields flag and never refuse.
TEST(IdentityTest, BuildFieldsDoNotRefuse) {
  StateIdentity here = Example();
  here.SetBuild("engine.build", "2");
  EXPECT_TRUE(CheckCompat(Example(), here).ok());
  EXPECT_EQ(here.CompatId(), Example().CompatId());
  const auto diffs = DiffBuild(Example(), here);
  ASSERT_EQ(diffs.size(), 1u);
  EXPECT_EQ(diffs[0].artifact, "1");
}

// LMCache#1095: keys that differ between processes. A golden value.
TEST(IdentityTest, CompatIdIsTheDocumentedHash) {
  EXPECT_EQ(Example().CompatId(),
            Sha256Hex(std::string_view("cache.type_k=f16\ncache.type_v=f16\nmodel.sha256=aa\n")));
}

TEST(IdentityTest, CheckIdentityRefusesWhatCouldForgeAnother) {
  EXPECT_TRUE(CheckIdentity(Example()).ok());
  EXPECT_TRUE(CheckIdentity({}).ok());
  StateIdentity id = Example();
  id.SetCompat("tenant", "x\ncache.type_k=q8_0");
  EXPECT_EQ(CheckIdentity(id).code(), Code::kInvalidArgument);
  id.SetCompat("tenant", "Zürich=1 \"quoted\"");
  EXPECT_TRUE(CheckIdentity(id).ok());
  id.SetCompat("tenant", std::string(4097, 'x'));
  EXPECT_FALSE(CheckIdentity(id).ok());
  for (const char* name : {"", "A", "a=b", "a b", "a\nb"}) {
    StateIdentity bad;
    bad.SetBuild(name, "v");
    EXPECT_FALSE(CheckIdentity(bad).ok()) << name;
  }
  StateIdentity unsorted;
  unsorted.compat = {{"b", "1"}, {"a", "1"}};
  EXPECT_FALSE(CheckIdentity(unsorted).ok());
  unsorted.compat = {{"a", "1"}, {"a", "2"}};
  EXPECT_FALSE(CheckIdentity(unsorted).ok());
}

TEST(IdentityTest, CanonicalFloatReadsBackToTheSameBits) {
  EXPECT_EQ(CanonicalFloat(10000.0f), "10000");
  EXPECT_EQ(CanonicalFloat(0.1f), "0.1");
  EXPECT_EQ(CanonicalFloat(1e6f), "1e+06");
  for (float v : {0.0f, -0.0f, 1.0f / 3, 3.4028235e38f, 1.4e-45f, 8388609.0f}) {
    const float back = std::strtof(CanonicalFloat(v).c_str(), nullptr);
    EXPECT_EQ(std::memcmp(&back, &v, sizeof(v)), 0) << CanonicalFloat(v);
  }
}

}  // namespace
}  // namespace kvgraft
