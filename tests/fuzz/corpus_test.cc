// The fuzzer's corpus as an ordinary test: every file as it is, and as the seed of changed fields
// behind valid checksums, and of cuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "kvgraft/core/file.h"
#include "tests/fuzz/artifact_reader.h"

namespace kvgraft::fuzz {
namespace {

struct CorpusFile {
  std::string name;
  std::vector<uint8_t> bytes;
};

std::vector<CorpusFile> Corpus() {
  std::vector<CorpusFile> files;
  const std::string folder = std::string(KVGRAFT_SOURCE_DIR) + "/tests/fuzz/corpus/artifact_reader";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string content = ReadFile(entry.path().string(), 1 << 20).value();
    files.push_back({entry.path().filename().string(), {content.begin(), content.end()}});
  }
  std::sort(files.begin(), files.end(),
            [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
  return files;
}

TEST(FuzzCorpusTest, EveryFileIsAcceptedOrRefusedAsItsNameSays) {
  const std::vector<CorpusFile> files = Corpus();
  EXPECT_GE(files.size(), 20u);
  for (const CorpusFile& file : files) {
    EXPECT_EQ(Accepts(file.bytes), file.name.rfind("ok-", 0) == 0) << file.name;
  }
}

// The checks are in the target: a broken one aborts.
TEST(FuzzCorpusTest, ExtremeFieldsBehindValidChecksums) {
  for (const CorpusFile& file : Corpus()) {
    SCOPED_TRACE(file.name);
    std::vector<uint8_t> sealed = {'S'};
    sealed.insert(sealed.end(), file.bytes.begin(), file.bytes.end());
    for (size_t at = 1; at < std::min<size_t>(sealed.size(), 64 * 8); ++at) {
      const uint8_t kept = sealed[at];
      for (int value : {0, 1, 0x7f, 0x80, 0xff}) {
        sealed[at] = static_cast<uint8_t>(value);
        RunArtifactReader(sealed);
      }
      sealed[at] = kept;
    }
  }
}

TEST(FuzzCorpusTest, CutsBehindValidChecksums) {
  for (const CorpusFile& file : Corpus()) {
    SCOPED_TRACE(file.name);
    std::vector<uint8_t> sealed = {'S'};
    sealed.insert(sealed.end(), file.bytes.begin(), file.bytes.end());
    for (size_t n = 0; n <= sealed.size(); n += 1 + n / 64) {
      RunArtifactReader(ByteSpan(sealed).first(n));
    }
  }
}

}  // namespace
}  // namespace kvgraft::fuzz
