#include "kvgraft/store/store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "kvgraft/store/testing.h"

namespace kvgraft::store {
namespace {

TEST_F(StoreTest, PutFindOpenExport) {
  Open();
  Sample sample = MakeSample(1);
  Result<Entry> put = store_->Put(sample.parts, sample.image, "doc");
  KVG_ASSERT_OK(put);
  EXPECT_EQ(put->id, sample.parts.manifest.id);
  EXPECT_EQ(put->names, std::vector<std::string>{"doc"});
  EXPECT_EQ(put->n_tokens, 20u);
  EXPECT_EQ(put->tier, "exact");
  EXPECT_EQ(put->model_name, "toy");
  EXPECT_EQ(put->compat_id, CompatOf(sample));
  EXPECT_EQ(put->file_bytes, std::filesystem::file_size(store_->ObjectPath(put->id)));
  for (const std::string& ref : {std::string("doc"), put->id, put->id.substr(0, 6)}) {
    Result<Entry> found = store_->Find(ref);
    KVG_ASSERT_OK(found);
    EXPECT_EQ(found->id, put->id);
  }
  Result<artifact::Reader> reader = store_->OpenArtifact(*put);
  KVG_ASSERT_OK(reader);
  KVG_ASSERT_OK(reader->VerifyPages());
  KVG_ASSERT_OK(reader->VerifyContent());
  EXPECT_TRUE(std::ranges::equal(reader->image(), sample.image));

  const std::string out = base_ + "/out.kvg";
  KVG_ASSERT_OK(store_->Export("doc", out, false));
  EXPECT_EQ(*ReadFile(out, 1 << 20), *ReadFile(store_->ObjectPath(put->id), 1 << 20));
  EXPECT_EQ(CodeOf(store_->Export("doc", out, false)), Code::kInvalidArgument);
  KVG_ASSERT_OK(store_->Export("doc", out, true));
  EXPECT_EQ(CodeOf(store_->Export("doc", base_ + "/no/such/out.kvg", false)), Code::kNotFound);
}

TEST_F(StoreTest, RefsThatNameNothingOrTooMuch) {
  Open();
  const std::string id = MustPut(1, "doc").id;
  const Status unknown = StatusOf(store_->Find("other"));
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_NE(unknown.message().find("doc"), std::string::npos) << unknown.message();
  EXPECT_EQ(CodeOf(store_->Find(id.substr(0, 5))), Code::kNotFound);  // too short for an id
  for (const char* bad : {"../doc", "", "a/b", "objects/../names/doc", "%2e%2e"}) {
    EXPECT_EQ(CodeOf(store_->Find(bad)), Code::kInvalidArgument) << bad;
    EXPECT_EQ(CodeOf(store_->Remove(bad)), Code::kInvalidArgument) << bad;
    EXPECT_EQ(CodeOf(store_->SetPinned(bad, true)), Code::kInvalidArgument) << bad;
    EXPECT_EQ(CodeOf(store_->SetName("doc", bad)), Code::kInvalidArgument) << bad;
  }
  // Two files with a common prefix: found by name, so they need not be real.
  std::string twin = id;
  twin.back() = twin.back() == '0' ? '1' : '0';
  std::filesystem::copy_file(store_->ObjectPath(id), store_->ObjectPath(twin));
  const Status ambiguous = StatusOf(store_->Find(id.substr(0, 8)));
  EXPECT_EQ(ambiguous.code(), Code::kInvalidArgument);
  EXPECT_NE(ambiguous.message().find(twin), std::string::npos);
}

TEST_F(StoreTest, NamesAndPins) {
  Open();
  const std::string a = MustPut(1, "doc").id;
  const std::string b = MustPut(2, "doc").id;  // the name moves
  EXPECT_EQ(store_->Find("doc")->id, b);
  EXPECT_TRUE(store_->Find(a)->names.empty());
  KVG_ASSERT_OK(store_->SetName(b, "again"));
  EXPECT_EQ(store_->Find(b)->names, (std::vector<std::string>{"again", "doc"}));
  KVG_ASSERT_OK(store_->SetPinned("doc", true));
  EXPECT_TRUE(store_->Find(b)->pinned);
  Open();
  EXPECT_TRUE(store_->Find("again")->pinned);
  // A name goes alone while another remains; with the last one goes the artifact.
  EXPECT_EQ(store_->Remove("doc")->names, std::vector<std::string>{"again"});
  EXPECT_EQ(CodeOf(store_->Find("doc")), Code::kNotFound);
  KVG_ASSERT_OK(store_->Remove("again"));
  EXPECT_EQ(Ids(), std::vector<std::string>{a});
  EXPECT_TRUE(FilesIn("names").empty());
  EXPECT_TRUE(FilesIn("pins").empty());
}

// What came from elsewhere must not stand for ever before the same state computed here.
TEST_F(StoreTest, AnExactStateReplacesTheSameOfAnotherTier) {
  Open();
  Sample imported = MakeSample(1), exact = MakeSample(1);
  imported.parts.manifest.tier = "imported";
  const auto put = [&](Sample& sample, const char* name) {
    Result<Entry> entry = store_->Put(sample.parts, sample.image, name);
    EXPECT_TRUE(entry.ok()) << entry.status().message();
    return entry.ok() ? *entry : Entry();
  };
  const Entry first = put(imported, "theirs");
  EXPECT_EQ(first.tier, "imported");
  const Entry second = put(exact, "ours");
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.tier, "exact");
  EXPECT_EQ(second.names.size(), 2u);
  EXPECT_TRUE(store_->FindLongestPrefix(CompatOf(exact), exact.parts.tokens).value().has_value());
  imported.parts.manifest.id.clear();
  EXPECT_EQ(put(imported, "").tier, "exact");
}

// vllm#53498: bytes written grow for ever although the content is there already.
TEST_F(StoreTest, TheSameContentAgainWritesNothing) {
  Open();
  const Entry first = MustPut(1);
  struct stat before, after;
  ASSERT_EQ(::stat(store_->ObjectPath(first.id).c_str(), &before), 0);
  const Entry second = MustPut(1, "named");
  ASSERT_EQ(::stat(store_->ObjectPath(first.id).c_str(), &after), 0);
  EXPECT_EQ(first.id, second.id);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(second.names, std::vector<std::string>{"named"});
  EXPECT_EQ(FilesIn("objects").size(), 1u);
}

// A state captured again heals a file that a disk broke.
TEST_F(StoreTest, PutReplacesABrokenFile) {
  Open();
  const Entry entry = MustPut(1);
  Overwrite(store_->ObjectPath(entry.id), entry.file_bytes / 2, "broken");
  MustPut(1);
  Result<artifact::Reader> reader = store_->OpenArtifact(*store_->Find(entry.id));
  KVG_ASSERT_OK(reader);
  KVG_ASSERT_OK(reader->VerifyContent());
  EXPECT_EQ(FilesIn("quarantine").size(), 2u);
}

TEST_F(StoreTest, ListIsInOrderOfUseAlsoAfterARebuild) {
  Open();
  const std::string a = MustPut(1).id, b = MustPut(2).id, c = MustPut(3).id;
  EXPECT_EQ(Ids(), (std::vector<std::string>{c, b, a}));
  KVG_ASSERT_OK(store_->MarkUsed(*store_->Find(a)));
  EXPECT_EQ(Ids(), (std::vector<std::string>{a, c, b}));
  KVG_ASSERT_OK(store_->OpenArtifact(*store_->Find(b)));
  EXPECT_EQ(Ids(), (std::vector<std::string>{b, a, c}));
  KVG_ASSERT_OK(store_->Rebuild());
  EXPECT_EQ(Ids(), (std::vector<std::string>{b, a, c}));
  Open();
  EXPECT_EQ(Ids(), (std::vector<std::string>{b, a, c}));
}

TEST_F(StoreTest, ImportVerifiesEverything) {
  Open();
  Sample sample = MakeSample(1);
  sample.parts.manifest.name = "suggested";
  Result<std::vector<uint8_t>> encoded = artifact::Encode(sample.parts, sample.image);
  KVG_ASSERT_OK(encoded);
  const std::string path = base_ + "/in.kvg";
  const auto write = [&](ByteSpan bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << AsChars(bytes);
  };
  for (size_t at = 0; at < encoded->size(); at += 37) {  // one flipped bit each
    std::vector<uint8_t> bad = *encoded;
    bad[at] ^= 1 << (at % 8);
    write(bad);
    EXPECT_FALSE(store_->Import(path, "").ok()) << "byte " << at;
  }
  for (size_t size = 0; size < encoded->size(); size += 101) {
    write(ByteSpan(*encoded).first(size));
    EXPECT_FALSE(store_->Import(path, "").ok()) << size << " bytes";
  }
  EXPECT_TRUE(Ids().empty());
  EXPECT_TRUE(FilesIn("names").empty());
  EXPECT_EQ(*store_->UsedBytes(), 0u);

  write(*encoded);
  Result<Entry> entry = store_->Import(path, "");
  KVG_ASSERT_OK(entry);
  EXPECT_EQ(entry->names, std::vector<std::string>{"suggested"});
  EXPECT_EQ(*ReadFile(store_->ObjectPath(entry->id), 1 << 20), AsChars(*encoded));
  std::filesystem::create_symlink(path, base_ + "/link.kvg");
  EXPECT_EQ(CodeOf(store_->Import(base_ + "/link.kvg", "")), Code::kInvalidArgument);
}

// The name in a file from elsewhere is a suggestion: it may not leave the folder (llama.cpp#26316),
// nor take over a name that somebody uses.
TEST_F(StoreTest, ImportTakesNoNameAway) {
  Open();
  const std::string mine = MustPut(1, "doc").id;
  for (const char* name : {"doc", "../../evil"}) {
    Sample sample = MakeSample(2);
    sample.parts.manifest.name = name;
    Result<std::vector<uint8_t>> encoded = artifact::Encode(sample.parts, sample.image);
    KVG_ASSERT_OK(encoded);
    const std::string path = base_ + "/in.kvg";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << AsChars(*encoded);
    Result<Entry> entry = store_->Import(path, "");
    KVG_ASSERT_OK(entry);
    EXPECT_TRUE(entry->names.empty());
    KVG_ASSERT_OK(store_->Remove(entry->id));
  }
  EXPECT_EQ(store_->Find("doc")->id, mine);
}

class PrefixTest : public StoreTest {
 protected:
  std::string PutTokens(uint32_t seed, std::vector<int32_t> tokens,
                        const std::string& tier = "exact", const std::string& model = "m1") {
    Sample sample = MakeSample(seed, 500, std::move(tokens), model);
    sample.parts.manifest.tier = tier;
    compat_ = CompatOf(sample);
    Result<Entry> entry = store_->Put(sample.parts, sample.image, "");
    EXPECT_TRUE(entry.ok()) << entry.status().message();
    return entry.ok() ? entry->id : "";
  }
  std::string Longest(const std::vector<int32_t>& tokens) {
    Result<std::optional<Entry>> found = store_->FindLongestPrefix(compat_, tokens);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() && found->has_value() ? (*found)->id : "none";
  }
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((options_.root + "/catalog.sqlite").c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(db);
  }
  std::string compat_;
};

TEST_F(PrefixTest, TheLongestOneInTheNamespace) {
  Open();
  const std::string three = PutTokens(1, {1, 2, 3});
  const std::string five = PutTokens(2, {1, 2, 3, 4, 5});
  PutTokens(3, {1, 2, 9});
  EXPECT_EQ(Longest({1, 2, 3, 4, 5, 6}), five);
  EXPECT_EQ(Longest({1, 2, 3, 4, 5}), five);
  EXPECT_EQ(Longest({1, 2, 3, 4, 6}), three);
  EXPECT_EQ(Longest({1, 2}), "none");
  EXPECT_EQ(Longest({}), "none");
  const std::string m1 = compat_;
  PutTokens(4, {7, 7}, "exact", "m2");  // now compat_ is the namespace of m2
  EXPECT_EQ(Longest({1, 2, 3}), "none");
  compat_ = m1;
  EXPECT_EQ(Longest({7, 7}), "none");
}

// Approximate state may never satisfy an exact look-up.
TEST_F(PrefixTest, OnlyExactOnes) {
  Open();
  const std::string exact = PutTokens(1, {1, 2});
  PutTokens(2, {1, 2, 3}, "moved");
  EXPECT_EQ(Longest({1, 2, 3, 4}), exact);
}

// LMCache#1728: what was stored was looked up under another key and never hit.
TEST_F(PrefixTest, WhatWasStoredIsFound) {
  Open();
  uint32_t random = 12345;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::vector<int32_t> tokens;
    const size_t n = 1 + seed * 7 % 300;
    for (size_t i = 0; i < n; ++i) {
      random = random * 1664525 + 1013904223;
      tokens.push_back(static_cast<int32_t>(random >> 8));
    }
    const std::string id = PutTokens(seed, tokens);
    EXPECT_EQ(Longest(tokens), id);
    tokens.push_back(-1);
    EXPECT_EQ(Longest(tokens), id);
  }
}

// LMCache#2961: an adapter that is loaded but not applied must leave the key of base states alone.
// Here the key is the compat fields alone: build fields, names and times do not enter.
TEST_F(PrefixTest, TheKeyHasNothingButTheIdentity) {
  Open();
  Sample sample = MakeSample(1, 500, {1, 2, 3});
  compat_ = CompatOf(sample);
  sample.parts.manifest.identity.SetBuild("engine.build", "another");
  sample.parts.manifest.created = "2030-01-01T00:00:00Z";
  KVG_ASSERT_OK(store_->Put(sample.parts, sample.image, ""));
  EXPECT_EQ(Longest({1, 2, 3}), sample.parts.manifest.id);
}

// sglang#8342, LMCache#3301: engineered hash collisions gave other users' state. A forged row of
// the index proposes an artifact with other tokens; the file's own tokens decide, and the row is
// put right.
TEST_F(PrefixTest, AForgedIndexRowDoesNotHit) {
  Open();
  const std::string victim = PutTokens(1, {10, 20, 30});
  const std::string other = PutTokens(2, {1, 2, 3});
  Sql("UPDATE artifacts SET tokens_sha256 = (SELECT tokens_sha256 FROM artifacts WHERE id = '" +
      other + "') WHERE id = '" + victim + "'");
  Sql("UPDATE artifacts SET tokens_sha256 = 'x' WHERE id = '" + other + "'");
  EXPECT_EQ(Longest({1, 2, 3}), "none");
  EXPECT_EQ(Longest({10, 20, 30}), victim);  // healed by the refused hit
  // The same for a namespace, a tier and a length that the file does not have.
  const std::string m1 = compat_;
  const std::string foreign = PutTokens(3, {5, 6}, "exact", "m2");
  Sql("UPDATE artifacts SET compat_id = '" + m1 + "' WHERE id = '" + foreign + "'");
  compat_ = m1;
  EXPECT_EQ(Longest({5, 6}), "none");
  const std::string moved = PutTokens(4, {8, 9}, "moved");
  Sql("UPDATE artifacts SET tier = 'exact' WHERE id = '" + moved + "'");
  EXPECT_EQ(Longest({8, 9}), "none");
}

TEST_F(PrefixTest, SurvivesTheLossOfTheIndex) {
  Open();
  const std::string id = PutTokens(1, {1, 2, 3});
  std::filesystem::remove(options_.root + "/catalog.sqlite");
  EXPECT_EQ(Longest({1, 2, 3, 4}), id);
  std::ofstream(options_.root + "/catalog.sqlite") << std::string(9000, 'x');
  EXPECT_EQ(Longest({1, 2, 3, 4}), id);
}

TEST_F(StoreTest, ThreadsShareOneStore) {
  Open();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 8; ++i) {
        Sample sample = MakeSample(t * 4 + i);  // some of them the same
        EXPECT_TRUE(store_->Put(sample.parts, sample.image, "t" + std::to_string(t)).ok());
        EXPECT_TRUE(store_->List().ok());
        const Sample look = MakeSample(i);
        EXPECT_TRUE(store_->FindLongestPrefix(CompatOf(look), look.parts.tokens).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Ids().size(), 20u);
  EXPECT_EQ(FilesIn("objects").size(), 20u);
}

}  // namespace
}  // namespace kvgraft::store
