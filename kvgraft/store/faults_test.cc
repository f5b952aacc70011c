// Crashes, damage, several processes.
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/inotify.h>
#endif

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "kvgraft/core/hash.h"
#include "kvgraft/store/testing.h"

namespace kvgraft::store {
namespace {

class FaultsTest : public StoreTest {
 protected:
  // Runs `body` in a process of its own; its result is the exit code.
  static pid_t Fork(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    return child;
  }
  static int Wait(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Puts artifacts for ever and tells the id of each one that is stored.
  int PutForever(uint32_t seed, int report_fd) {
    Result<std::unique_ptr<Store>> store = Store::Open(options_);
    if (!store.ok()) return 1;
    for (;; ++seed) {
      Sample sample = MakeSample(seed, 2000 + seed % 5 * 1500);
      Result<Entry> entry = (*store)->Put(sample.parts, sample.image, "latest");
      if (!entry.ok()) return 2;
      if (::write(report_fd, entry->id.data(), 64) != 64) return 3;
    }
  }
};

// omlx#3095, ark#497: a crash while saving left files that were loaded later. A process that stores
// is killed at 100 random moments; each time the store opens, has everything that was reported as
// stored, and all that it has verifies.
TEST_F(FaultsTest, KilledAtRandomMoments) {
  std::mt19937 random(7);
  std::set<std::string> reported;
  uint32_t interrupted = 0;
  for (uint32_t round = 0; round < 100; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = Fork([&] { return PutForever(round * 1000, pipe_fds[1]); });
    ::close(pipe_fds[1]);
    // Half of them while it starts and stores its first, half from then on.
    char id[64];
    if (round % 2 == 1 && ::read(pipe_fds[0], id, sizeof(id)) == sizeof(id)) {
      reported.emplace(id, sizeof(id));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(Wait(child), 128 + SIGKILL);
    while (::read(pipe_fds[0], id, sizeof(id)) == sizeof(id)) reported.emplace(id, sizeof(id));
    ::close(pipe_fds[0]);
    interrupted += FilesIn("tmp").empty() ? 0 : 1;

    Open();
    Result<std::vector<Entry>> entries = store_->List();
    KVG_ASSERT_OK(entries);
    std::set<std::string> listed;
    for (const Entry& entry : *entries) listed.insert(entry.id);
    ASSERT_TRUE(std::ranges::includes(listed, reported)) << "round " << round;
    ASSERT_EQ(listed.size(), FilesIn("objects").size());
    ASSERT_TRUE(FilesIn("tmp").empty());
    ASSERT_TRUE(FilesIn("quarantine").empty());
    // All of them now and then, the newest every time: what is verified once does not change.
    const size_t n = round % 20 == 19 ? entries->size() : std::min<size_t>(3, entries->size());
    for (size_t i = 0; i < n; ++i) {
      Result<artifact::Reader> reader =
          artifact::Reader::Open(store_->ObjectPath((*entries)[i].id));
      KVG_ASSERT_OK(reader);
      KVG_ASSERT_OK(reader->VerifyPages());
      KVG_ASSERT_OK(reader->VerifyContent());
    }
    if (!reported.empty()) KVG_ASSERT_OK(store_->Find("latest"));
    store_.reset();
  }
  EXPECT_GE(reported.size(), 50u);
  EXPECT_GT(interrupted, 10u);  // else the moments were not in the middle of anything
}

#ifdef __linux__
// ark#497: the state was streamed to its final name. Under its own name the file appears whole, by
// a rename, and is never written to.
TEST_F(FaultsTest, OnlyATemporaryNameWhileWriting) {
  Open();
  Sample sample = MakeSample(1, 1 << 20);
  const std::string id = artifact::ContentId(sample.parts.manifest.identity, sample.parts.tokens,
                                             sample.parts.positions,
                                             sample.parts.manifest.n_image_tokens, sample.image);
  const std::string shard = std::filesystem::path(store_->ObjectPath(id)).parent_path();
  KVG_ASSERT_OK(MakePrivateDirs(shard));
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(::inotify_add_watch(watch, shard.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO), 0);
  KVG_ASSERT_OK(store_->Put(sample.parts, sample.image, ""));
  alignas(inotify_event) char buffer[4096];
  const ssize_t n = ::read(watch, buffer, sizeof(buffer));
  ::close(watch);
  ASSERT_GT(n, 0);
  const auto* event = reinterpret_cast<const inotify_event*>(buffer);
  EXPECT_EQ(event->mask, uint32_t{IN_MOVED_TO});
  EXPECT_EQ(std::string(event->name), id + ".kvg");
  EXPECT_EQ(n, static_cast<ssize_t>(sizeof(*event) + event->len));  // and nothing else
}
#endif

TEST_F(FaultsTest, TwoProcessesPutTheSame) {
  Open();  // a third one, that reads
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(Fork([&] {
      Result<std::unique_ptr<Store>> store = Store::Open(options_);
      if (!store.ok()) return 1;
      for (uint32_t seed = 0; seed < 20; ++seed) {
        Sample sample = MakeSample(seed);
        if (!(*store)->Put(sample.parts, sample.image, "same").ok()) return 2;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(Wait(child), 0);
  EXPECT_EQ(Ids().size(), 20u);
  EXPECT_EQ(FilesIn("objects").size(), 20u);
  EXPECT_TRUE(FilesIn("quarantine").empty());
  EXPECT_EQ(store_->Find("same")->n_tokens, 20u);
}

// Writers, an evicting budget, rebuilds and readers in six processes at once.
TEST_F(FaultsTest, ProcessesDoNotDisturbEachOther) {
  Sample one = MakeSample(1);
  options_.budget_bytes = 6 * FileBytesOf(one);
  std::vector<pid_t> children;
  for (uint32_t who = 0; who < 6; ++who) {
    children.push_back(Fork([&, who] {
      Result<std::unique_ptr<Store>> store = Store::Open(options_);
      if (!store.ok()) return 1;
      for (uint32_t i = 0; i < 15; ++i) {
        Sample sample = MakeSample(who % 4 * 10 + i % 10);
        if (who < 4 && !(*store)->Put(sample.parts, sample.image, "n").ok()) return 2;
        if (who == 4 && !(*store)->Rebuild().ok()) return 3;
        Result<std::vector<Entry>> entries = (*store)->List();
        if (!entries.ok()) return 4;
        for (const Entry& entry : *entries) {
          Result<artifact::Reader> reader = (*store)->OpenArtifact(entry);
          if (!reader.ok() && reader.status().code() != Code::kNotFound) return 5;
          if (reader.ok() && !reader->VerifyContent().ok()) return 6;
        }
        const Result<std::optional<Entry>> found =
            (*store)->FindLongestPrefix(CompatOf(sample), sample.parts.tokens);
        if (!found.ok()) return 7;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(Wait(child), 0);
  Open();
  EXPECT_LE(BytesOnDisk(), options_.budget_bytes);
  EXPECT_TRUE(FilesIn("quarantine").empty());
  EXPECT_EQ(Ids().size(), FilesIn("objects").size());
}

// Another process that writes for long does not keep a reader waiting.
TEST_F(FaultsTest, ReadersDoNotBlock) {
  Open();
  const std::string id = MustPut(1, "doc").id;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = Fork([&] {
    StoreOptions options = options_;
    bool armed = false;
    // Called within Reserve, with the lock held.
    options.free_bytes = [&](const std::string&) -> Result<uint64_t> {
      if (armed && ::write(ready[1], "x", 1) == 1) ::pause();
      return uint64_t{1} << 40;
    };
    Result<std::unique_ptr<Store>> store = Store::Open(options);
    if (!store.ok()) return 1;
    armed = true;
    return (*store)->Reserve(1).ok() ? 0 : 2;
  });
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto start = std::chrono::steady_clock::now();
  KVG_ASSERT_OK(store_->OpenArtifact(*store_->Find("doc")));
  EXPECT_EQ(Ids(), std::vector<std::string>{id});
  KVG_ASSERT_OK(store_->Export("doc", base_ + "/out.kvg", false));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(900));
  Open();  // a new process does not wait for the writer either
  EXPECT_EQ(Ids(), std::vector<std::string>{id});
  ::kill(child, SIGKILL);
  EXPECT_EQ(Wait(child), 128 + SIGKILL);
  MustPut(2);  // and nothing of the killed one blocks
  ::close(ready[0]);
  ::close(ready[1]);
}

// Mooncake#850: an object was evicted and overwritten in the middle of a slow read.
TEST_F(FaultsTest, AnOpenArtifactSurvivesItsEviction) {
  Open();
  const Entry entry = MustPut(1, "", 1 << 20);
  Result<artifact::Reader> reader = store_->OpenArtifact(entry);
  KVG_ASSERT_OK(reader);
  const pid_t child = Fork([&] {
    StoreOptions options = options_;
    options.budget_bytes = (1 << 20) + 100'000;
    Result<std::unique_ptr<Store>> store = Store::Open(options);
    if (!store.ok()) return 1;
    Sample sample = MakeSample(2, 1 << 20);
    return (*store)->Put(sample.parts, sample.image, "").ok() ? 0 : 2;
  });
  ASSERT_EQ(Wait(child), 0);
  EXPECT_FALSE(FileExists(store_->ObjectPath(entry.id)));
  KVG_ASSERT_OK(reader->VerifyPages());
  KVG_ASSERT_OK(reader->VerifyContent());
  EXPECT_TRUE(std::ranges::equal(reader->image(), MakeSample(1, 1 << 20).image));
  EXPECT_EQ(CodeOf(store_->OpenArtifact(entry)), Code::kNotFound);
}

// LMCache#1690: the index said present, the payload was gone, and requests failed until redeploy.
TEST_F(FaultsTest, APayloadRemovedBehindTheIndexIsAMiss) {
  Open();
  const Entry a = MustPut(1, "a"), b = MustPut(2, "b");
  std::filesystem::remove(store_->ObjectPath(a.id));
  const Sample look = MakeSample(1);
  Result<std::optional<Entry>> found = store_->FindLongestPrefix(a.compat_id, look.parts.tokens);
  KVG_ASSERT_OK(found);
  EXPECT_FALSE(found->has_value());
  EXPECT_EQ(CodeOf(store_->Find("a")), Code::kNotFound);
  EXPECT_EQ(CodeOf(store_->Find(a.id)), Code::kNotFound);
  EXPECT_EQ(CodeOf(store_->OpenArtifact(a)), Code::kNotFound);
  EXPECT_EQ(Ids(), std::vector<std::string>{b.id});
  EXPECT_EQ(MustPut(1, "a").id, a.id);  // and it can be stored again
  EXPECT_EQ(Ids().size(), 2u);
}

// LMCache#1175: the tier kept its files and forgot them at restart.
TEST_F(FaultsTest, ARestartFindsEverythingWithAndWithoutTheIndex) {
  Open();
  std::vector<std::string> ids;
  for (uint32_t i = 0; i < 5; ++i) ids.push_back(MustPut(i, "n" + std::to_string(i)).id);
  std::ranges::reverse(ids);
  Open();
  EXPECT_EQ(Ids(), ids);
  store_.reset();
  std::filesystem::remove(options_.root + "/catalog.sqlite");
  Open();
  EXPECT_EQ(Ids(), ids);
  EXPECT_EQ(store_->Find("n3")->id, ids[1]);
}

// Mooncake#1196: with damaged metadata everything on disk was lost. The index is made again, sound
// entries stay, broken ones go aside with the reason.
TEST_F(FaultsTest, ADamagedIndexIsRebuiltAndBrokenEntriesAreQuarantined) {
  for (const std::string& junk :
       {std::string(), std::string("SQLite format 3\0", 16), std::string(10'000, '\x11')}) {
    std::filesystem::remove_all(options_.root);
    Open();
    const Entry good = MustPut(1, "good"), cut = MustPut(2, "cut"), zero = MustPut(3, "zero");
    store_.reset();
    std::ofstream(options_.root + "/catalog.sqlite", std::ios::trunc) << junk;
    Open();
    std::filesystem::resize_file(store_->ObjectPath(cut.id), cut.file_bytes / 2);
    std::filesystem::resize_file(store_->ObjectPath(zero.id), 0);
    store_.reset();
    std::filesystem::remove(options_.root + "/catalog.sqlite");
    Open();
    EXPECT_EQ(Ids(), std::vector<std::string>{good.id});
    EXPECT_EQ(CodeOf(store_->Find("cut")), Code::kNotFound);
    EXPECT_EQ(FilesIn("quarantine").size(), 4u);
    const std::string reason =
        *ReadFile(options_.root + "/quarantine/" + cut.id + ".kvg.reason", 10'000);
    EXPECT_NE(reason.find("name: cut"), std::string::npos) << reason;
    EXPECT_FALSE(store_->warnings().empty());
  }
}

TEST_F(FaultsTest, RebuildVerifiesEveryPage) {
  Open();
  const Entry good = MustPut(1), bad = MustPut(2, "bad");
  Overwrite(store_->ObjectPath(bad.id), bad.file_bytes / 2, "x");
  Result<RebuildReport> report = store_->Rebuild();
  KVG_ASSERT_OK(report);
  EXPECT_EQ(report->entries, 1u);
  ASSERT_EQ(report->quarantined.size(), 1u);
  EXPECT_NE(report->quarantined[0].find(bad.id), std::string::npos);
  EXPECT_EQ(Ids(), std::vector<std::string>{good.id});
}

TEST_F(FaultsTest, AFileUnderAnotherIdIsNotListed) {
  Open();
  const Entry good = MustPut(1);
  std::string fake = good.id;
  fake.back() = fake.back() == '0' ? '1' : '0';
  std::filesystem::copy_file(store_->ObjectPath(good.id), store_->ObjectPath(fake));
  EXPECT_EQ(Ids(), std::vector<std::string>{good.id});
  EXPECT_FALSE(FileExists(store_->ObjectPath(fake)));
  EXPECT_EQ(CodeOf(store_->Find(fake)), Code::kNotFound);
  // Swapped behind the index, with an equal size.
  const Entry other = MustPut(2);
  ASSERT_EQ(other.file_bytes, good.file_bytes);
  std::filesystem::copy_file(store_->ObjectPath(good.id), store_->ObjectPath(other.id),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(CodeOf(store_->OpenArtifact(other)), Code::kCorrupt);
  EXPECT_EQ(Ids(), std::vector<std::string>{good.id});
}

TEST_F(FaultsTest, QuarantineKeepsTheReasonAndListsNoMore) {
  Open();
  const Entry entry = MustPut(1, "doc");
  KVG_ASSERT_OK(store_->SetPinned("doc", true));
  KVG_ASSERT_OK(store_->Quarantine(entry.id, "page 3: checksum"));
  EXPECT_TRUE(Ids().empty());
  EXPECT_EQ(CodeOf(store_->Find("doc")), Code::kNotFound);
  EXPECT_EQ(*ReadFile(options_.root + "/quarantine/" + entry.id + ".kvg.reason", 1000),
            "page 3: checksum\nname: doc\n");
  EXPECT_EQ(CodeOf(store_->Quarantine(entry.id, "again")), Code::kNotFound);
  EXPECT_EQ(CodeOf(store_->Quarantine("../x", "path")), Code::kNotFound);
  for (uint32_t i = 0; i < 20; ++i) KVG_ASSERT_OK(store_->Quarantine(MustPut(i).id, "many"));
  EXPECT_EQ(FilesIn("quarantine").size(), 32u);  // 16 files, 16 reasons
  MustPut(1, "doc");
  EXPECT_EQ(Ids().size(), 1u);
}

// home-ops#9684: a newer program's files must not be taken for broken ones.
TEST_F(FaultsTest, FilesOfANewerVersionAreLeftAlone) {
  Open();
  const Entry entry = MustPut(1, "new");
  const std::string path = store_->ObjectPath(entry.id);
  std::string bytes = *ReadFile(path, 1 << 20);
  bytes[8] = 2;  // docs/format.md: version, then the checksum of the first 56 bytes
  const uint64_t checksum = Xxh3(AsBytes(bytes).first(56));
  for (size_t i = 0; i < 8; ++i) bytes[56 + i] = static_cast<char>(checksum >> (8 * i));
  Overwrite(path, 0, bytes);
  ASSERT_EQ(CodeOf(artifact::Reader::Open(path)), Code::kUnsupported);
  store_.reset();
  std::filesystem::remove(options_.root + "/catalog.sqlite");
  Open();
  EXPECT_TRUE(Ids().empty());
  EXPECT_TRUE(FileExists(path));
  EXPECT_TRUE(FilesIn("quarantine").empty());
  EXPECT_EQ(CodeOf(store_->Find("new")), Code::kUnsupported);
}

}  // namespace
}  // namespace kvgraft::store
