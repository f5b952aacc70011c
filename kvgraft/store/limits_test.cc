// Budget, free space, eviction, and a full disk.
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kvgraft/store/testing.h"

namespace kvgraft::store {
namespace {

class LimitsTest : public StoreTest {
 protected:
  // A budget for n of the samples of 3,000 bytes.
  void BudgetFor(uint64_t n, uint64_t more = 0) {
    Sample sample = MakeSample(1);
    one_ = FileBytesOf(sample);
    options_.budget_bytes = n * one_ + more;
  }
  uint64_t one_ = 0;
};

TEST_F(LimitsTest, TheLeastRecentlyUsedGoes) {
  BudgetFor(3);
  Open();
  const std::string a = MustPut(1, "a").id, b = MustPut(2, "b").id, c = MustPut(3, "c").id;
  KVG_ASSERT_OK(store_->OpenArtifact(*store_->Find(a)));
  const std::string d = MustPut(4).id;
  EXPECT_EQ(Ids(), (std::vector<std::string>{d, a, c}));
  EXPECT_EQ(CodeOf(store_->Find("b")), Code::kNotFound);
  EXPECT_EQ(FilesIn("names").size(), 2u);
  EXPECT_LE(BytesOnDisk(), options_.budget_bytes);
}

TEST_F(LimitsTest, PinnedStayAndTheRefusalSaysSo) {
  BudgetFor(2);
  Open();
  const std::string a = MustPut(1).id, b = MustPut(2).id;
  KVG_ASSERT_OK(store_->SetPinned(a, true));
  const std::string c = MustPut(3).id;
  EXPECT_EQ(Ids(), (std::vector<std::string>{c, a}));
  KVG_ASSERT_OK(store_->SetPinned(c, true));
  Sample sample = MakeSample(4);
  const Status refused = StatusOf(store_->Put(sample.parts, sample.image, ""));
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_NE(refused.message().find("pinned"), std::string::npos) << refused.message();
  EXPECT_EQ(Ids().size(), 2u);
}

// ik_llama.cpp#2320: at least one entry was kept whatever its size, up to 222 GB.
// llama.cpp#20509: saving a prompt larger than the limit ended in an OOM kill.
TEST_F(LimitsTest, LargerThanTheBudgetIsRefusedBeforeAnythingHappens) {
  BudgetFor(3);
  Open();
  MustPut(1), MustPut(2), MustPut(3);
  Sample big = MakeSample(4, 4 * one_);
  EXPECT_EQ(CodeOf(store_->Put(big.parts, big.image, "big")), Code::kExhausted);
  EXPECT_EQ(CodeOf(store_->Reserve(options_.budget_bytes + 1)), Code::kExhausted);
  EXPECT_EQ(CodeOf(store_->Reserve(UINT64_MAX)), Code::kExhausted);
  EXPECT_EQ(Ids().size(), 3u);
  EXPECT_EQ(FilesIn("tmp").size(), 1u);                   // the owner file of this process
  KVG_ASSERT_OK(store_->Reserve(options_.budget_bytes));  // all three go
  EXPECT_EQ(Ids().size(), 0u);
}

// omlx#2064: the limit was not applied to files found at start; states of absent models stayed.
TEST_F(LimitsTest, AnOverFullStoreIsCutAtStart) {
  Open();
  std::vector<std::string> ids;
  for (uint32_t i = 1; i <= 6; ++i) ids.push_back(MustPut(i).id);
  BudgetFor(4);
  Open();
  EXPECT_EQ(Ids(), (std::vector<std::string>{ids[5], ids[4], ids[3], ids[2]}));
  ASSERT_EQ(store_->warnings().size(), 1u);
  EXPECT_NE(store_->warnings()[0].find("evicted 2"), std::string::npos);
  BudgetFor(3);
  options_.evict_first = [&](const Entry& entry) { return entry.id == ids[5]; };
  Open();
  EXPECT_EQ(Ids(), (std::vector<std::string>{ids[4], ids[3], ids[2]}));
}

// LMCache#4546: files removed by others never gave back their budget; in time nothing was stored.
TEST_F(LimitsTest, ExternalRemovalsGiveBackTheBudget) {
  BudgetFor(2, 100);
  Open();
  for (uint32_t i = 0; i < 1000; ++i) {
    Sample sample = MakeSample(i % 7);
    Result<Entry> entry = store_->Put(sample.parts, sample.image, "");
    ASSERT_TRUE(entry.ok()) << i << ": " << entry.status().message();
    if (i % 3 == 0) {
      for (const std::string& file : FilesIn("objects")) std::filesystem::remove(file);
    }
  }
  const std::string last = MustPut(8).id;
  EXPECT_EQ(Ids()[0], last);
  EXPECT_EQ(*store_->UsedBytes(), BytesOnDisk());
  EXPECT_LE(BytesOnDisk(), options_.budget_bytes);
}

// vllm#26329: a full tier gave warnings and then an IndexError.
TEST_F(LimitsTest, ATinyTierOnlyEvicts) {
  BudgetFor(1);
  Open();
  for (uint32_t i = 0; i < 100; ++i) {
    const std::string id = MustPut(i, "latest").id;
    ASSERT_EQ(Ids(), std::vector<std::string>{id});
  }
  EXPECT_EQ(FilesIn("names").size(), 1u);
}

// LMCache#4664: an unbounded store filled the node's disk.
TEST_F(LimitsTest, StopsAtTheFreeSpaceFloor) {
  uint64_t disk = 100'000;
  options_.free_floor_bytes = 50'000;
  options_.free_bytes = [&](const std::string&) -> Result<uint64_t> {
    return disk - BytesOnDisk();
  };
  Open();
  for (uint32_t i = 0; i < 30; ++i) {
    MustPut(i);
    EXPECT_GE(disk - BytesOnDisk(), options_.free_floor_bytes);
  }
  const size_t n = Ids().size();
  EXPECT_GT(n, 3u);
  // Others take the space: writing stops, and evicting everything would not help.
  disk = 60'000;
  Sample sample = MakeSample(99, 20'000);
  const Status refused = StatusOf(store_->Put(sample.parts, sample.image, ""));
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_NE(refused.message().find("free on disk"), std::string::npos) << refused.message();
  EXPECT_EQ(Ids().size(), n);
  // At start as much goes as brings the floor back.
  disk = 70'000;
  Open();
  EXPECT_LT(Ids().size(), n);
  EXPECT_GE(disk - BytesOnDisk(), options_.free_floor_bytes);
}

TEST_F(LimitsTest, GcTellsFirstAndThenDoes) {
  BudgetFor(4);
  Open();
  std::vector<std::string> ids;
  for (uint32_t i = 1; i <= 3; ++i) ids.push_back(MustPut(i, "n" + std::to_string(i)).id);
  // Put there by another program, past the budget.
  Result<std::unique_ptr<Store>> other =
      Store::Open({.root = options_.root, .free_floor_bytes = 0});
  KVG_ASSERT_OK(other);
  for (uint32_t i = 4; i <= 6; ++i) {
    Sample sample = MakeSample(i);
    KVG_ASSERT_OK((*other)->Put(sample.parts, sample.image, ""));
  }
  const uint64_t before = BytesOnDisk();
  Result<GcReport> would = store_->Gc(/*dry_run=*/true);
  KVG_ASSERT_OK(would);
  EXPECT_EQ(BytesOnDisk(), before);
  ASSERT_EQ(would->evicted.size(), 2u);
  EXPECT_EQ(would->evicted[0].names, std::vector<std::string>{"n1"});
  Result<GcReport> did = store_->Gc(/*dry_run=*/false);
  KVG_ASSERT_OK(did);
  ASSERT_EQ(did->evicted.size(), 2u);
  EXPECT_EQ(did->evicted[0].id, ids[0]);
  EXPECT_EQ(did->bytes_freed, would->bytes_freed);
  EXPECT_EQ(did->bytes_used, BytesOnDisk());
  EXPECT_EQ(did->bytes_used, would->bytes_used);
  EXPECT_TRUE(store_->Gc(false)->evicted.empty());
}

#ifdef __linux__
class FullDiskTest : public LimitsTest {
 protected:
  void SetUp() override {
    LimitsTest::SetUp();
    mount_ = base_ + "/disk";
    KVG_ASSERT_OK(MakePrivateDirs(mount_));
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small tmpfs";
    if (::mount("tmpfs", mount_.c_str(), "tmpfs", 0, "size=16m") != 0) {
      GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(errno);
    }
    mounted_ = true;
    options_.root = mount_ + "/store";
  }
  void TearDown() override {
    store_.reset();
    if (mounted_) ::umount2(mount_.c_str(), MNT_DETACH);
    StoreTest::TearDown();
  }
  // Takes all that is left of the disk.
  void FillUp() {
    std::ofstream file(mount_ + "/filler", std::ios::binary | std::ios::app);
    const std::string block(4096, 'f');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  std::string mount_;
  bool mounted_ = false;
};

// lmstudio-bug-tracker#181: with a full disk the program ended silently and did not start again.
TEST_F(FullDiskTest, RefusesLivesAndStartsAgain) {
  // The disk claims to have room, so that writing itself meets its end.
  options_.free_bytes = [](const std::string&) -> Result<uint64_t> { return uint64_t{1} << 40; };
  Open();
  const std::string small = MustPut(1, "small").id;
  uint32_t stored = 0;
  Status full;
  for (uint32_t i = 2; i < 40 && full.ok(); ++i) {
    Sample sample = MakeSample(i, 3 << 20);
    full = StatusOf(store_->Put(sample.parts, sample.image, ""));
    if (full.ok()) ++stored;
  }
  EXPECT_EQ(full.code(), Code::kExhausted) << full.message();
  EXPECT_GE(stored, 3u);
  EXPECT_EQ(FilesIn("tmp").size(), 1u);  // the owner file of this process
  EXPECT_EQ(Ids().size(), stored + 1);
  KVG_ASSERT_OK(store_->OpenArtifact(*store_->Find("small")));

  FillUp();
  for (int i = 0; i < 2; ++i) {
    Open();  // starts on a disk without one free block
    EXPECT_EQ(Ids().size(), stored + 1);
    KVG_ASSERT_OK(store_->OpenArtifact(*store_->Find(small)));
    Sample sample = MakeSample(50);
    EXPECT_EQ(CodeOf(store_->Put(sample.parts, sample.image, "")), Code::kExhausted);
    // Also without an index, which cannot be written now.
    store_.reset();
    std::filesystem::remove(options_.root + "/catalog.sqlite");
    FillUp();
  }
  Open();
  const Sample look = MakeSample(1);
  Result<std::optional<Entry>> found = store_->FindLongestPrefix(CompatOf(look), look.parts.tokens);
  KVG_ASSERT_OK(found);
  EXPECT_TRUE(found->has_value());

  std::filesystem::remove(mount_ + "/filler");
  Open();
  MustPut(51);
  EXPECT_EQ(Ids().size(), stored + 2);
}

// The real statvfs: a floor keeps the last megabytes free, and nothing is written to learn that.
TEST_F(FullDiskTest, TheFloorHoldsOnARealFileSystem) {
  options_.free_floor_bytes = 8 << 20;
  Open();
  Status full;
  for (uint32_t i = 0; i < 40 && full.ok(); ++i) {
    Sample sample = MakeSample(i, 1 << 20);
    Result<Entry> entry = store_->Put(sample.parts, sample.image, "");
    full = StatusOf(entry);
    if (full.ok()) KVG_ASSERT_OK(store_->SetPinned(entry->id, true));
  }
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_GE(std::filesystem::space(mount_).available, options_.free_floor_bytes);
  EXPECT_GE(Ids().size(), 5u);
}
#endif

}  // namespace
}  // namespace kvgraft::store
