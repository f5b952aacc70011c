#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "kvgraft/artifact/testing.h"

namespace kvgraft::artifact {
namespace {

using testing::Bytes;
using testing::FullParts;
using testing::kSmallPages;
using testing::RandomBytes;
using testing::SmallParts;

// Manifest has no operator==: every field, so that a new one that is not written fails here.
void ExpectSame(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.tier, b.tier);
  EXPECT_EQ(a.identity, b.identity);
  EXPECT_EQ(a.n_tokens, b.n_tokens);
  EXPECT_EQ(a.n_image_tokens, b.n_image_tokens);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.probe, b.probe);
  EXPECT_EQ(a.parent, b.parent);
  EXPECT_EQ(a.model_name, b.model_name);
  EXPECT_EQ(a.created, b.created);
  EXPECT_EQ(a.producer, b.producer);
  EXPECT_EQ(a.prompt_kind, b.prompt_kind);
  EXPECT_EQ(a.prompt_suffix, b.prompt_suffix);
  EXPECT_EQ(a.prefill_us, b.prefill_us);
}

TEST(WriterTest, EverythingComesBack) {
  Parts parts = FullParts();
  const Bytes image = RandomBytes(9001, 1);
  const auto file = Encode(parts, image, kSmallPages);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(IsSha256Hex(parts.manifest.id));
  const auto reader = Reader::FromBytes(*file, "test.kvg");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ExpectSame(reader->manifest(), parts.manifest);
  EXPECT_EQ(reader->tokens(), parts.tokens);
  EXPECT_EQ(reader->positions(), parts.positions);
  EXPECT_EQ(reader->text(), parts.text);
  EXPECT_EQ(Bytes(reader->image().begin(), reader->image().end()), image);
  EXPECT_EQ(reader->n_pages(), 3u);
  EXPECT_EQ(reader->page_bytes(), 4096u);
  EXPECT_EQ(reader->file_bytes(), file->size());
  EXPECT_TRUE(reader->VerifyPages().ok());
  EXPECT_TRUE(reader->VerifyContent().ok());
  // In place, aligned: a mapped image is used without a copy.
  EXPECT_EQ((reader->image().data() - file->data()) % 64, 0);
  EXPECT_EQ(reader->image().data() + image.size(), file->data() + file->size());
}

// llama.cpp#1263: off by one at the ends. mlx-examples#977: short states.
TEST(WriterTest, EveryNumberOfTokensComesBack) {
  for (int32_t n : {0, 1, 2, 3, 15, 16, 17, 255, 4096}) {
    for (size_t image_bytes : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{8192}}) {
      Parts parts = SmallParts();
      parts.tokens.resize(static_cast<size_t>(n));
      std::iota(parts.tokens.begin(), parts.tokens.end(), 100);
      parts.manifest.n_tokens = static_cast<uint64_t>(n);
      parts.manifest.n_image_tokens = static_cast<uint64_t>(n);
      const Bytes image = RandomBytes(image_bytes, static_cast<uint32_t>(n));
      const auto file = Encode(parts, image, kSmallPages);
      ASSERT_TRUE(file.ok()) << file.status().message();
      const auto reader = Reader::FromBytes(*file, "test.kvg");
      ASSERT_TRUE(reader.ok()) << n << ": " << reader.status().message();
      EXPECT_EQ(reader->tokens(), parts.tokens);
      EXPECT_EQ(reader->n_pages(), (image_bytes + 4095) / 4096);
      EXPECT_TRUE(reader->VerifyPages(3).ok());
      EXPECT_TRUE(reader->VerifyContent().ok());
    }
  }
}

TEST(WriterTest, FileBytesIsExact) {
  for (bool full : {false, true}) {
    for (size_t n : {1, 63, 64, 65, 5000}) {
      Parts parts = full ? FullParts() : SmallParts();
      const auto before = FileBytes(parts, n, kSmallPages);
      const auto file = Encode(parts, RandomBytes(n, 1), kSmallPages);
      ASSERT_TRUE(before.ok() && file.ok());
      EXPECT_EQ(*before, file->size());
      EXPECT_EQ(*FileBytes(parts, n, kSmallPages), file->size()) << "with the id filled in";
    }
  }
}

// llama-cpp-python#1303: state files far larger than the state (n_ctx x n_vocab scores in them).
TEST(WriterTest, TheFileIsHardlyLargerThanTheImage) {
  Parts parts = FullParts();
  parts.tokens.assign(8192, 7);
  parts.positions.clear();
  parts.manifest.n_tokens = parts.manifest.n_image_tokens = 8192;
  parts.text.assign(40000, 'x');
  const uint64_t image = 189ull << 20;
  const auto bytes = FileBytes(parts, image);
  ASSERT_TRUE(bytes.ok());
  EXPECT_GT(*bytes, image);
  EXPECT_LE(*bytes, image + (64 << 10) + parts.text.size() + 4 * parts.tokens.size());
}

TEST(WriterTest, WriteMakesTheSameBytesAsEncode) {
  Parts parts = FullParts();
  const Bytes image = RandomBytes(10000, 2);
  const Bytes expected = testing::MustEncode(parts, image);
  const std::string dir = ::testing::TempDir();
  const std::string path = JoinPath(dir, "kvgraft_writer_test.kvg");
  auto out = AtomicFile::Create(path, dir);
  ASSERT_TRUE(out.ok());
  ASSERT_TRUE(Write(parts, image, *out, kSmallPages).ok());
  EXPECT_EQ(Write(parts, image, *out, kSmallPages).code(), Code::kInvalidArgument)
      << "a second artifact into the same file";
  ASSERT_TRUE(out->Commit().ok());
  EXPECT_EQ(*ReadFile(path, 1 << 20), AsChars(expected));

  auto reader = Reader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Reader moved = std::move(*reader);  // views stay valid
  EXPECT_TRUE(moved.VerifyPages(2).ok());
  EXPECT_TRUE(moved.VerifyContent().ok());
  ExpectSame(moved.manifest(), parts.manifest);
  std::remove(path.c_str());
  EXPECT_EQ(Reader::Open(path).status().code(), Code::kNotFound);
}

TEST(WriterTest, ContentIdDependsOnTheStateAndOnNothingElse) {
  const Bytes image = RandomBytes(100, 3);
  const auto id = [&image](Parts parts, const Bytes* other = nullptr) {
    KVG_CHECK(Encode(parts, other != nullptr ? *other : image, kSmallPages).ok());
    return parts.manifest.id;
  };
  const std::string base = id(SmallParts());
  Parts same = SmallParts();
  same.manifest.name = "other";
  same.manifest.created = "2027-01-01T00:00:00Z";
  same.manifest.identity.SetBuild("engine.version", "9");
  same.manifest.probe.padded_sha256 = std::string(64, '0');
  same.text = "text";
  EXPECT_EQ(id(same), base);
  same.positions = {0, 1, 2};  // what absent positions mean
  EXPECT_EQ(id(same), base);

  Parts p = SmallParts();
  p.tokens[2] = 4;
  EXPECT_NE(id(p), base);
  p = SmallParts();
  p.positions = {0, 1, 3};
  EXPECT_NE(id(p), base);
  p = SmallParts();
  p.manifest.n_image_tokens = 2;
  EXPECT_NE(id(p), base);
  p = SmallParts();
  p.manifest.identity.SetCompat("cache.type_k", "f16");
  EXPECT_NE(id(p), base);
  Bytes changed = image;
  changed[50] ^= 1;
  EXPECT_NE(id(SmallParts(), &changed), base);
}

TEST(WriterTest, PositionsThatCountFromZeroAreNotStored) {
  Parts parts = SmallParts();
  parts.positions = {0, 1, 2};
  const Bytes file = testing::MustEncode(parts, RandomBytes(10, 1));
  EXPECT_EQ(file, testing::MustEncode(SmallParts(), RandomBytes(10, 1)));
  EXPECT_TRUE(Reader::FromBytes(file, "t")->positions().empty());
}

TEST(WriterTest, WhatIsWrongIsNotWritten) {
  const Bytes image = RandomBytes(100, 1);
  const auto refuses = [&image](const std::function<void(Parts&, WriteOptions&)>& change,
                                Code code = Code::kInvalidArgument) {
    Parts parts = SmallParts();
    WriteOptions options = kSmallPages;
    change(parts, options);
    const auto file = Encode(parts, image, options);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), code) << file.status().message();
  };
  refuses([](Parts& p, WriteOptions&) { p.manifest.id = std::string(64, '0'); });
  refuses([](Parts& p, WriteOptions&) { p.manifest.n_tokens = 4; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.n_image_tokens = 4; });
  refuses([](Parts& p, WriteOptions&) { p.positions = {1, 2}; });
  refuses([](Parts& p, WriteOptions&) { p.positions = {-1, 0, 1}; });
  refuses([](Parts& p, WriteOptions&) { p.tokens[0] = -1; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.tier = "Exact"; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.parent = "abc"; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.created = "yesterday"; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.name = "\xff"; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.identity.SetCompat("tenant", "a\nb"); });
  refuses([](Parts& p, WriteOptions&) { p.manifest.probe.suffix.assign(65, 1); });
  refuses([](Parts& p, WriteOptions&) { p.manifest.prefill_us = 1ull << 53; });
  refuses([](Parts& p, WriteOptions&) { p.manifest.name.assign(5 << 20, 'x'); });
  refuses([](Parts&, WriteOptions& o) { o.page_bytes = 5000; });
  refuses([](Parts&, WriteOptions& o) { o.page_bytes = 2048; });
  refuses([](Parts&, WriteOptions& o) { o.page_bytes = 128u << 20; });
  refuses([](Parts&, WriteOptions& o) { o.version = 0; }, Code::kUnsupported);
  refuses([](Parts&, WriteOptions& o) { o.version = 2; }, Code::kUnsupported);
  Parts parts = SmallParts();
  EXPECT_EQ(Encode(parts, {}, kSmallPages).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(FileBytes(parts, ~uint64_t{0}, kSmallPages).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvgraft::artifact
