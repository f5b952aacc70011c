// Modes and links: who can read what is stored, and where a path may lead.
#include <sys/stat.h>

#include <fstream>

#include "kvgraft/store/testing.h"

namespace kvgraft::store {
namespace {

class PrivacyTest : public StoreTest {};

// caporalCoder/hearth: a state is as secret as its text. 0700 and 0600 whatever the umask.
TEST_F(PrivacyTest, PrivateWhateverTheUmask) {
  const mode_t old = ::umask(0);
  Open();
  const Entry entry = MustPut(1, "doc");
  KVG_ASSERT_OK(store_->SetPinned("doc", true));
  KVG_ASSERT_OK(store_->Export("doc", base_ + "/out.kvg", false));
  KVG_ASSERT_OK(store_->Quarantine(MustPut(2).id, "why"));
  ::umask(old);
  size_t n = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(options_.root)) {
    EXPECT_EQ(ModeOf(item.path()), item.is_directory() ? 0700u : 0600u) << item.path();
    ++n;
  }
  EXPECT_GT(n, 10u);
  EXPECT_EQ(ModeOf(options_.root), 0700u);
  EXPECT_EQ(ModeOf(base_ + "/out.kvg"), 0600u);
  EXPECT_TRUE(store_->warnings().size() == 1) << "only the quarantine";
}

TEST_F(PrivacyTest, AnOpenFolderIsClosedWithAWarning) {
  Open();
  const Entry entry = MustPut(1);
  store_.reset();
  ::chmod(options_.root.c_str(), 0755);
  ::chmod((options_.root + "/objects").c_str(), 0777);
  ::chmod((options_.root + "/objects/" + entry.id.substr(0, 2)).c_str(), 0755);
  ::chmod((options_.root + "/catalog.sqlite").c_str(), 0644);
  ::chmod((options_.root + "/objects/" + entry.id.substr(0, 2) + "/" + entry.id + ".kvg").c_str(),
          0644);
  Open();
  ASSERT_EQ(store_->warnings().size(), 1u);
  EXPECT_NE(store_->warnings()[0].find("0755"), std::string::npos) << store_->warnings()[0];
  for (const auto& item : std::filesystem::recursive_directory_iterator(options_.root)) {
    EXPECT_EQ(ModeOf(item.path()) & 077, 0u) << item.path();
  }
  EXPECT_EQ(ModeOf(options_.root), 0700u);
  Open();
  EXPECT_TRUE(store_->warnings().empty());
}

// llama.cpp#26316, the other half: links inside the folder lead out of it as well as names do.
TEST_F(PrivacyTest, LinksAreNotFollowed) {
  namespace fs = std::filesystem;
  Open();
  const Entry a = MustPut(1, "doc");
  const std::string outside = base_ + "/outside";
  fs::create_directory(outside);
  // An object.
  fs::rename(store_->ObjectPath(a.id), outside + "/a.kvg");
  fs::create_symlink(outside + "/a.kvg", store_->ObjectPath(a.id));
  EXPECT_EQ(CodeOf(store_->Find(a.id)), Code::kNotFound);
  EXPECT_EQ(CodeOf(store_->OpenArtifact(a)), Code::kNotFound);
  EXPECT_TRUE(Ids().empty());
  Open();
  EXPECT_TRUE(Ids().empty());
  EXPECT_FALSE(FileExists(store_->ObjectPath(a.id)));  // aside, the target untouched
  EXPECT_TRUE(fs::exists(outside + "/a.kvg"));
  // A name, read and written.
  MustPut(2, "two");
  fs::rename(options_.root + "/names/two", outside + "/two");
  fs::create_symlink(outside + "/two", options_.root + "/names/two");
  EXPECT_EQ(CodeOf(store_->Find("two")), Code::kNotFound);
  const std::string before = *ReadFile(outside + "/two", 100);
  MustPut(3, "two");
  EXPECT_EQ(*ReadFile(outside + "/two", 100), before);
  // Folders.
  store_.reset();
  for (const std::string& name :
       {std::string("objects"), std::string("tmp"), std::string("names")}) {
    const std::string path = options_.root + "/" + name;
    fs::rename(path, outside + "/" + name);
    fs::create_symlink(outside + "/" + name, path);
    EXPECT_EQ(CodeOf(Store::Open(options_)), Code::kInvalidArgument) << name;
    fs::remove(path);
    fs::rename(outside + "/" + name, path);
  }
  fs::create_directory_symlink(options_.root, base_ + "/link");
  EXPECT_EQ(CodeOf(Store::Open({.root = base_ + "/link"})), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Store::Open({.root = base_ + "/link/"})), Code::kInvalidArgument);
  std::ofstream(base_ + "/file") << "x";
  EXPECT_EQ(CodeOf(Store::Open({.root = base_ + "/file"})), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Store::Open({.root = ""})), Code::kInvalidArgument);
  Open();
  EXPECT_EQ(Ids().size(), 2u);
}

}  // namespace
}  // namespace kvgraft::store
