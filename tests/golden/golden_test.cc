// Golden files: the bytes of every format version, for ever. A writer that changes them changed the
// format; a reader that does not open them lost a version.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kvgraft/artifact/manifest.h"
#include "kvgraft/artifact/testing.h"

namespace kvgraft::artifact {
namespace {

using testing::Bytes;

const std::string kFolder = std::string(KVGRAFT_SOURCE_DIR) + "/tests/golden/";

Bytes Small() { return testing::MustEncode(testing::SmallParts(), testing::RandomBytes(100, 1)); }
Bytes Full() { return testing::MustEncode(testing::FullParts(), testing::RandomBytes(9001, 2)); }

// As a later writer of the same version may make it: an ignore bit, a manifest member that is not
// known, and an optional section in between.
Bytes Later() {
  std::vector<testing::RawSection> sections = testing::Disassemble(Full());
  std::string json(sections[0].payload.begin(), sections[0].payload.end());
  json.insert(1, "\"a_later_member\":{\"x\":[1,-2.5e3,null]},");
  sections[0].payload.assign(json.begin(), json.end());
  sections.insert(sections.begin() + 3,
                  {{.kind = 40, .parameter = 9, .codec = 3}, testing::RandomBytes(70, 3)});
  return testing::Assemble(sections, {.ignore_bits = 0x80});
}

// The bytes of `name`; on a difference the new ones are left in the temporary folder for a look.
void ExpectGolden(const std::string& name, const Bytes& bytes) {
  const auto golden = ReadFile(kFolder + name, 1 << 20);
  if (golden.ok() && *golden == AsChars(bytes)) return;
  const std::string copy = JoinPath(::testing::TempDir(), name);
  (void)WriteFileAtomic(copy, AsChars(bytes)).ok();
  ADD_FAILURE() << name << " differs from what is written now, see " << copy << " ("
                << golden.status().message() << ")";
}

TEST(GoldenTest, WriterGivesTheseBytes) {
  ExpectGolden("v1-small.kvg", Small());
  ExpectGolden("v1-full.kvg", Full());
  ExpectGolden("v1-later.kvg", Later());
}

// The .json beside each file is what the independent reader printed for it.
TEST(GoldenTest, ReaderOpensThemAndAgreesWithTheIndependentReader) {
  for (const char* name : {"v1-small", "v1-full", "v1-later"}) {
    SCOPED_TRACE(name);
    const auto reader = Reader::Open(kFolder + name + ".kvg");
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_TRUE(reader->VerifyPages(2).ok());
    EXPECT_TRUE(reader->VerifyContent().ok());
    const auto text = ReadFile(kFolder + name + ".json", 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status().message();
    auto expected = nlohmann::json::parse(*text);
    expected["manifest"].erase("a_later_member");
    EXPECT_EQ(nlohmann::json::parse(*ManifestToJson(reader->manifest())), expected["manifest"]);
    EXPECT_EQ(reader->tokens(), expected["tokens"].get<std::vector<int32_t>>());
    EXPECT_EQ(Sha256Hex(reader->text()), expected["text_sha256"]);
    EXPECT_EQ(Sha256Hex(reader->image()), expected["image_sha256"]);
    EXPECT_EQ(reader->n_pages(), expected["pages"]);
    EXPECT_EQ(reader->file_bytes(), expected["file_bytes"]);
  }
}

// LMCache#1095, LMCache#1728: keys that differ between processes or between store and look-up.
TEST(GoldenTest, ContentIdIsTheSameEverywhere) {
  Parts parts = testing::SmallParts();
  EXPECT_EQ(ContentId(parts.manifest.identity, parts.tokens, {}, 3, testing::RandomBytes(100, 1)),
            "6ea0b6fd06199dbb0266f75089b0a0422cc09bdb061662e9ab44480dc38a88f9");
}

}  // namespace
}  // namespace kvgraft::artifact
