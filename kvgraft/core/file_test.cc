#include "kvgraft/core/file.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#ifdef __linux__
#include <sys/mount.h>
#endif

namespace kvgraft {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/kvgraft_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { (void)!std::system(("rm -rf '" + dir_ + "'").c_str()); }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  // Names in `dir`, hidden ones too.
  static std::vector<std::string> Names(const std::string& dir) {
    std::vector<std::string> names;
    DIR* d = ::opendir(dir.c_str());
    while (d != nullptr) {
      const dirent* entry = ::readdir(d);
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (d != nullptr) ::closedir(d);
    return names;
  }

  static mode_t Mode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  std::string dir_;
};

TEST_F(FileTest, CommitMakesTheWholeFile) {
  auto file = AtomicFile::Create(Path("a"), dir_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(file->Reserve(11).ok());
  ASSERT_TRUE(file->Append(AsBytes("xxxxx world")).ok());
  ASSERT_TRUE(file->WriteAt(0, AsBytes("hello")).ok());
  EXPECT_EQ(file->size(), 11u);
  // ark#497: while it is written, only a temporary name exists.
  EXPECT_FALSE(FileExists(Path("a")));
  EXPECT_TRUE(FileExists(file->temp_path()));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Names(dir_), std::vector<std::string>{"a"});
  EXPECT_EQ(*ReadFile(Path("a"), 100), "hello world");
  EXPECT_EQ(Mode(Path("a")), 0600u);
}

TEST_F(FileTest, WithoutCommitNothingIsLeft) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "old").ok());
  {
    auto file = AtomicFile::Create(Path("a"), dir_);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append(AsBytes("new")).ok());
    AtomicFile moved = std::move(*file);
    EXPECT_EQ(moved.size(), 3u);
  }
  EXPECT_EQ(Names(dir_), std::vector<std::string>{"a"});
  EXPECT_EQ(*ReadFile(Path("a"), 100), "old");
}

TEST_F(FileTest, AFailedCommitLeavesNothing) {
  ASSERT_EQ(::mkdir(Path("a").c_str(), 0700), 0);
  ASSERT_TRUE(WriteFileAtomic(Path("a/inside"), "x").ok());
  auto file = AtomicFile::Create(Path("a"), dir_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append(AsBytes("new")).ok());
  EXPECT_FALSE(file->Commit().ok());
  EXPECT_EQ(Names(dir_), std::vector<std::string>{"a"});
}

TEST_F(FileTest, TwoWritersOfOneNameDoNotMix) {
  auto first = AtomicFile::Create(Path("a"), dir_);
  auto second = AtomicFile::Create(Path("a"), dir_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->temp_path(), second->temp_path());
  ASSERT_TRUE(first->Append(AsBytes("first")).ok());
  ASSERT_TRUE(second->Append(AsBytes("second")).ok());
  ASSERT_TRUE(second->Commit().ok());
  ASSERT_TRUE(first->Commit().ok());
  EXPECT_EQ(*ReadFile(Path("a"), 100), "first");
  EXPECT_EQ(Names(dir_).size(), 1u);
}

TEST_F(FileTest, LinksAreNotFollowed) {
  ASSERT_TRUE(WriteFileAtomic(Path("target"), "secret").ok());
  ASSERT_EQ(::symlink(Path("target").c_str(), Path("link").c_str()), 0);
  EXPECT_EQ(ReadFile(Path("link"), 100).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MappedFile::Open(Path("link"), false).status().code(), Code::kInvalidArgument);
  // A write replaces the link and leaves its target alone.
  ASSERT_TRUE(WriteFileAtomic(Path("link"), "mine").ok());
  EXPECT_EQ(*ReadFile(Path("target"), 100), "secret");
  EXPECT_EQ(*ReadFile(Path("link"), 100), "mine");
}

TEST_F(FileTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_EQ(ReadFile(dir_, 100).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(Path("fifo"), 100).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(MappedFile::Open(Path("fifo"), true).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ReadFile(Path("none"), 100).status().code(), Code::kNotFound);
  EXPECT_EQ(MappedFile::Open(Path("none"), true).status().code(), Code::kNotFound);
  EXPECT_EQ(AtomicFile::Create(Path(""), dir_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AtomicFile::Create(Path(".."), dir_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(AtomicFile::Create(Path("a"), Path("none")).status().code(), Code::kNotFound);
}

TEST_F(FileTest, MappedFileShowsTheBytes) {
  const std::string content(100000, 'k');
  ASSERT_TRUE(WriteFileAtomic(Path("a"), content).ok());
  for (bool populate : {false, true}) {
    auto map = MappedFile::Open(Path("a"), populate);
    ASSERT_TRUE(map.ok());
    MappedFile moved = std::move(*map);
    EXPECT_EQ(AsChars(moved.bytes()), content);
    EXPECT_EQ(map->bytes().size(), 0u);
    // Replacing the file by rename does not change what is mapped.
    ASSERT_TRUE(WriteFileAtomic(Path("a"), "other").ok());
    EXPECT_EQ(AsChars(moved.bytes()), content);
    ASSERT_TRUE(WriteFileAtomic(Path("a"), content).ok());
  }
  ASSERT_TRUE(WriteFileAtomic(Path("empty"), "").ok());
  EXPECT_TRUE(MappedFile::Open(Path("empty"), true)->bytes().empty());
}

TEST_F(FileTest, ReadFileKeepsItsLimit) {
  ASSERT_TRUE(WriteFileAtomic(Path("a"), "12345").ok());
  EXPECT_EQ(*ReadFile(Path("a"), 5), "12345");
  EXPECT_EQ(ReadFile(Path("a"), 4).status().code(), Code::kCorrupt);
}

// caporalCoder/hearth: snapshots equal a plaintext transcript, so folder and files are private,
// whatever the umask.
TEST_F(FileTest, ModesArePrivateWhateverTheUmask) {
  for (mode_t mask : {0, 0777}) {
    const mode_t before = ::umask(mask);
    const std::string base = Path("m" + std::to_string(mask));
    const Status made = MakePrivateDirs(base + "/b/c");
    const Status written = WriteFileAtomic(base + "/b/c/f", "x");
    ::umask(before);
    ASSERT_TRUE(made.ok()) << made.message();
    ASSERT_TRUE(written.ok()) << written.message();
    for (const char* p : {"", "/b", "/b/c"}) EXPECT_EQ(Mode(base + p), 0700u) << p;
    EXPECT_EQ(Mode(base + "/b/c/f"), 0600u);
  }
}

TEST_F(FileTest, MakePrivateDirsLeavesOthersAlone) {
  ASSERT_EQ(::mkdir(Path("shared").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(Path("shared").c_str(), 0755), 0);
  EXPECT_TRUE(MakePrivateDirs(Path("shared/a/")).ok());
  EXPECT_TRUE(MakePrivateDirs(Path("shared/a")).ok());
  EXPECT_EQ(Mode(Path("shared")), 0755u);
  ASSERT_TRUE(WriteFileAtomic(Path("file"), "x").ok());
  EXPECT_EQ(MakePrivateDirs(Path("file/a")).code(), Code::kInvalidArgument);
  EXPECT_EQ(MakePrivateDirs("").code(), Code::kInvalidArgument);
}

// lmstudio-bug-tracker#181: a full disk ended the program and left a state that could not start.
// Here the limit of the file size stands for the disk (EFBIG).
TEST_F(FileTest, AFileAboveTheSizeLimitIsExhausted) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<uint8_t> bytes(10000, 1);
  auto file = AtomicFile::Create(Path("a"), dir_);
  Status appended;
  if (file.ok()) appended = file->Append(bytes);
  const Status whole = WriteFileAtomic(Path("b"), std::string(10000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(appended.code(), Code::kExhausted);
  EXPECT_EQ(whole.code(), Code::kExhausted);
  EXPECT_NE(whole.message().find("free some space"), std::string::npos) << whole.message();
  *file = AtomicFile::Create(Path("c"), dir_).value();  // drops the first one
  EXPECT_EQ(Names(dir_).size(), 1u) << "only the temporary file of c";
}

#ifdef __linux__
// The same with a disk that is really full: a tmpfs of 1 MiB, which takes root.
TEST_F(FileTest, AFullDiskIsExhaustedAndLeavesNothing) {
  ASSERT_EQ(::mkdir(Path("disk").c_str(), 0700), 0);
  if (::mount("none", Path("disk").c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs here (needs root)";
  }
  const std::vector<uint8_t> bytes(2 << 20, 1);
  Status reserved, appended;
  {
    auto file = AtomicFile::Create(Path("disk/a"), Path("disk"));
    if (file.ok()) reserved = file->Reserve(bytes.size());
    if (file.ok()) appended = file->Append(bytes);
  }
  const std::vector<std::string> left = Names(Path("disk"));
  const Status after = WriteFileAtomic(Path("disk/b"), std::string(1 << 19, 'x'));
  ASSERT_EQ(::umount2(Path("disk").c_str(), MNT_DETACH), 0);
  EXPECT_EQ(reserved.code(), Code::kExhausted);
  EXPECT_EQ(appended.code(), Code::kExhausted);
  EXPECT_TRUE(left.empty());
  EXPECT_TRUE(after.ok()) << after.message();
}
#endif

TEST(PathTest, JoinPath) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", ""), "a");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
}

}  // namespace
}  // namespace kvgraft
