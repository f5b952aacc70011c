// Bad input: damaged, lying, foreign and newer files. Each is refused with a Status, before an
// engine could see a byte and before memory is taken for it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>

#include "kvgraft/artifact/testing.h"

namespace kvgraft::artifact {
namespace {

using testing::Assemble;
using testing::Bytes;
using testing::Disassemble;
using testing::FullParts;
using testing::GetU64;
using testing::LoadAll;
using testing::MustEncode;
using testing::PutU64;
using testing::RandomBytes;
using testing::RawSection;
using testing::Seal;
using testing::SmallParts;

constexpr uint64_t kLies[] = {0,
                              1,
                              uint64_t{1} << 31,
                              0xffffffffu,
                              uint64_t{1} << 40,
                              uint64_t{1} << 62,
                              uint64_t{1} << 63,
                              ~uint64_t{0} - 63,
                              ~uint64_t{0}};

// Resident memory now, in bytes; 0 where /proc does not tell.
uint64_t ResidentBytes() {
  uint64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

// llama.cpp#9173: an empty slot file ended the server.
TEST(DamageTest, EmptyTinyAndHeaderOnlyFiles) {
  const Bytes file = MustEncode(SmallParts(), RandomBytes(100, 1));
  for (size_t n : {0, 1, 7, 8, 10, 63, 64, 65, 128}) {
    EXPECT_EQ(LoadAll(ByteSpan(file).first(n)).code(), Code::kCorrupt) << n;
  }
  EXPECT_EQ(LoadAll(Bytes(64, 0)).code(), Code::kCorrupt);
  EXPECT_EQ(LoadAll(Bytes(1 << 20, 0)).code(), Code::kCorrupt) << "zero-filled, omlx#3095";
}

// omlx#3095: files that a power cut left truncated were read back without an error.
TEST(DamageTest, EveryPrefixIsRefused) {
  for (const Bytes& file : {MustEncode(SmallParts(), RandomBytes(100, 1)),
                            MustEncode(FullParts(), RandomBytes(5000, 2))}) {
    ASSERT_TRUE(LoadAll(file).ok());
    for (size_t n = 0; n < file.size(); ++n) {
      ASSERT_EQ(LoadAll(ByteSpan(file).first(n)).code(), Code::kCorrupt) << n;
    }
    Bytes longer = file;
    longer.push_back(0);
    EXPECT_EQ(LoadAll(longer).code(), Code::kCorrupt);
  }
}

// llama.cpp#27068: a damaged file was noticed after parts of it were in the cache.
TEST(DamageTest, EveryFlippedBitIsRefused) {
  for (const Bytes& original : {MustEncode(SmallParts(), RandomBytes(100, 1)),
                                MustEncode(FullParts(), RandomBytes(5000, 2))}) {
    Bytes file = original;
    for (size_t bit = 0; bit < file.size() * 8; ++bit) {
      file[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      const Code code = LoadAll(file).code();
      ASSERT_EQ(code, Code::kCorrupt) << "byte " << bit / 8 << " bit " << bit % 8;
      file[bit / 8] = original[bit / 8];
    }
  }
}

TEST(DamageTest, TenThousandRandomFlipsInALargerFileAreRefused) {
  Parts parts = FullParts();
  parts.tokens.assign(1500, 3);
  parts.positions.clear();
  parts.manifest.n_tokens = parts.manifest.n_image_tokens = 1500;
  parts.text.assign(6000, 't');
  const Bytes original = MustEncode(parts, RandomBytes(200000, 3), {.page_bytes = 65536});
  Bytes file = original;
  std::mt19937_64 random(4);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t bit = random() % (file.size() * 8);
    file[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    ASSERT_EQ(LoadAll(file).code(), Code::kCorrupt) << "bit " << bit;
    file[bit / 8] = original[bit / 8];
  }
  EXPECT_TRUE(LoadAll(file).ok());
}

TEST(DamageTest, ABadPageIsNamedWhateverTheThreads) {
  Bytes file = MustEncode(SmallParts(), RandomBytes(40000, 1));
  const size_t image = file.size() - 40000;
  file[image + 4096 * 3 + 5] ^= 1;
  file[image + 4096 * 7 + 5] ^= 1;
  const auto reader = Reader::FromBytes(file, "some.kvg");
  ASSERT_TRUE(reader.ok()) << "the image is verified by VerifyPages";
  for (unsigned threads : {0u, 1u, 2u, 5u, 64u}) {
    const Status s = reader->VerifyPages(threads);
    EXPECT_EQ(s.code(), Code::kCorrupt);
    EXPECT_NE(s.message().find("some.kvg: image page 3 of 10 (bytes 12288 to 16384"),
              std::string::npos)
        << s.message();
  }
  EXPECT_EQ(reader->VerifyContent().code(), Code::kCorrupt);
}

// home-ops#9684: files of another version were misread.
TEST(DamageTest, OtherVersionsAreUnsupportedAndSaySo) {
  for (uint64_t version : {uint64_t{0}, uint64_t{2}, uint64_t{256}, uint64_t{65535}}) {
    Bytes file = MustEncode(SmallParts(), RandomBytes(100, 1));
    PutU64(file, 8, version, 2);
    EXPECT_EQ(LoadAll(file).code(), Code::kCorrupt) << "the header's checksum comes first";
    PutU64(file, 56, Xxh3(ByteSpan(file).first(56)));
    const Status s = LoadAll(file);
    EXPECT_EQ(s.code(), Code::kUnsupported) << version;
    EXPECT_NE(s.message().find("written in format version " + std::to_string(version) +
                               ", this program reads 1 to 1"),
              std::string::npos)
        << s.message();
  }
}

TEST(DamageTest, OtherMagicIsTold) {
  const Bytes good = MustEncode(SmallParts(), RandomBytes(100, 1));
  const auto message = [&good](const Bytes& magic, Code code) {
    Bytes file = good;
    std::copy(magic.begin(), magic.end(), file.begin());
    const Status s = LoadAll(file);
    EXPECT_EQ(s.code(), code) << s.message();
    return s.message();
  };
  EXPECT_NE(message({'G', 'G', 'U', 'F'}, Code::kCorrupt).find("not a .kvg artifact"),
            std::string::npos);
  EXPECT_NE(message({0x89, 'P', 'N', 'G'}, Code::kCorrupt).find("not a .kvg"), std::string::npos);
  EXPECT_NE(message({0x89, 'K', 'V', 'G', '\n', 0x1a, '\n'}, Code::kCorrupt).find("text mode"),
            std::string::npos);
  EXPECT_NE(message({0x89, 'K', 'V', 'G', '\r', '\r', '\n'}, Code::kCorrupt).find("text mode"),
            std::string::npos);
  EXPECT_NE(message({0x09, 'K', 'V', 'G'}, Code::kCorrupt).find("text mode"), std::string::npos);
  EXPECT_NE(
      message({'\n', 0x1a, '\n', '\r', 'G', 'V', 'K', 0x89}, Code::kUnsupported).find("big-endian"),
      std::string::npos);
}

TEST(DamageTest, FeatureBits) {
  const std::vector<RawSection> sections =
      Disassemble(MustEncode(FullParts(), RandomBytes(100, 1)));
  EXPECT_TRUE(LoadAll(Assemble(sections)).ok());
  EXPECT_TRUE(LoadAll(Assemble(sections, {.ignore_bits = 0xffffffffu})).ok());
  const Status s = LoadAll(Assemble(sections, {.refuse_bits = 0x80000001u}));
  EXPECT_EQ(s.code(), Code::kUnsupported);
  EXPECT_NE(s.message().find("0x80000001"), std::string::npos);
}

// llama.cpp#26004: an appendix must load on older servers, unless it is marked as required.
TEST(DamageTest, UnknownSections) {
  const std::vector<RawSection> known = Disassemble(MustEncode(FullParts(), RandomBytes(100, 1)));
  for (size_t at = 0; at <= known.size(); ++at) {
    std::vector<RawSection> sections = known;
    RawSection extra{{.kind = 7777, .flags = 0, .parameter = 5, .codec = 9}, RandomBytes(77, 1)};
    sections.insert(sections.begin() + static_cast<ptrdiff_t>(at), extra);
    Bytes file = Assemble(sections);
    EXPECT_TRUE(LoadAll(file).ok()) << "optional, at " << at;
    // Ignored, but not unverified.
    file[Disassemble(file)[at].entry.offset + 76] ^= 1;
    EXPECT_EQ(LoadAll(file).code(), Code::kCorrupt);

    sections[at].entry.flags = kFlagRequired;
    const Status s = LoadAll(Assemble(sections));
    EXPECT_EQ(s.code(), Code::kUnsupported) << "required, at " << at;
    EXPECT_NE(s.message().find("7777"), std::string::npos) << s.message();
  }
}

TEST(DamageTest, SectionsThatCannotBe) {
  const std::vector<RawSection> known = Disassemble(MustEncode(FullParts(), RandomBytes(100, 1)));
  for (size_t i = 0; i < known.size(); ++i) {
    std::vector<RawSection> twice = known;
    twice.push_back(known[i]);
    EXPECT_EQ(LoadAll(Assemble(twice)).code(), Code::kCorrupt) << "twice: " << known[i].entry.kind;

    std::vector<RawSection> missing = known;
    missing.erase(missing.begin() + static_cast<ptrdiff_t>(i));
    const bool optional = known[i].entry.kind == static_cast<uint32_t>(SectionKind::kText) ||
                          known[i].entry.kind == static_cast<uint32_t>(SectionKind::kPositions);
    EXPECT_EQ(LoadAll(Assemble(missing)).code(), optional ? Code::kOk : Code::kCorrupt)
        << "missing: " << known[i].entry.kind;

    const auto changed = [&known, i](const std::function<void(SectionEntry&)>& change) {
      std::vector<RawSection> sections = known;
      change(sections[i].entry);
      return LoadAll(Assemble(sections)).code();
    };
    EXPECT_EQ(changed([](SectionEntry& e) { e.kind = 0; }), Code::kCorrupt);
    EXPECT_EQ(changed([](SectionEntry& e) { e.flags |= 2; }), Code::kCorrupt);
    EXPECT_EQ(changed([](SectionEntry& e) { e.flags |= 1u << 31; }), Code::kCorrupt);
    EXPECT_EQ(changed([](SectionEntry& e) { e.codec = 1; }), Code::kUnsupported);
    EXPECT_EQ(changed([](SectionEntry& e) { e.parameter ^= 1; }), Code::kCorrupt);
    EXPECT_EQ(changed([](SectionEntry& e) { e.flags ^= kFlagRequired; }), Code::kOk)
        << "the flag matters for unknown kinds only";
    std::vector<RawSection> longer = known;
    longer[i].payload.push_back(0);
    const bool text = known[i].entry.kind == static_cast<uint32_t>(SectionKind::kText);
    EXPECT_EQ(LoadAll(Assemble(longer)).code(), text ? Code::kOk : Code::kCorrupt)
        << "a byte more: " << known[i].entry.kind;
  }
  std::vector<RawSection> reversed(known.rbegin(), known.rend());
  EXPECT_TRUE(LoadAll(Assemble(reversed)).ok()) << "any order";
}

// llama.cpp#27530, #26004: counts and sizes that are used before they are checked. Every size field
// with every lie, under valid checksums; nothing may be allocated by them.
TEST(DamageTest, LyingSizesAreRefusedWithoutMemory) {
  const Bytes original = MustEncode(FullParts(), RandomBytes(5000, 2));
  const size_t n = GetU64(original, 40);
  std::vector<std::pair<size_t, size_t>> fields = {{10, 2}, {20, 4}, {24, 8}, {32, 8}, {40, 8}};
  for (size_t i = 0; i < n; ++i) {
    for (size_t field : {8, 16, 32}) fields.push_back({64 + i * 64 + field, 8});
  }
  struct rusage before {};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  const uint64_t resident = ResidentBytes();
  for (const auto& [offset, bytes] : fields) {
    for (uint64_t lie : kLies) {
      for (int64_t delta : {-1, 0, 1}) {
        Bytes file = original;
        PutU64(file, offset, lie + static_cast<uint64_t>(delta), bytes);
        if (file == original) continue;
        Seal(file, n);
        ASSERT_EQ(LoadAll(file).code(), Code::kCorrupt)
            << "field at " << offset << " = " << lie << " + " << delta;
      }
    }
    Bytes file = original;
    for (int64_t delta : {-64, -4, -1, 1, 4, 64}) {  // near the truth
      PutU64(file, offset, GetU64(original, offset, bytes) + static_cast<uint64_t>(delta), bytes);
      Seal(file, n);
      ASSERT_EQ(LoadAll(file).code(), Code::kCorrupt) << "field at " << offset << " + " << delta;
    }
  }
  struct rusage after {};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 << 10) << "KiB of peak memory";
  EXPECT_LT(ResidentBytes(), resident + (16u << 20));
}

// The same against the table's own bounds: a sealed header whose count reaches into the payloads.
TEST(DamageTest, SectionCountsUpToTheFileAreRefused) {
  const Bytes original = MustEncode(FullParts(), RandomBytes(5000, 2));
  const size_t n = GetU64(original, 40);
  for (size_t count = 0; count * 64 + 64 <= original.size(); ++count) {
    if (count == n) continue;
    Bytes file = original;
    PutU64(file, 40, count);
    Seal(file, count);
    EXPECT_EQ(LoadAll(file).code(), Code::kCorrupt) << count;
  }
}

TEST(DamageTest, SectionsThatOverlapOrLeaveGapsAreRefused) {
  std::vector<RawSection> sections = Disassemble(MustEncode(FullParts(), RandomBytes(100, 1)));
  Bytes file = Assemble(sections);
  // The second section on top of the first.
  PutU64(file, 64 + 64 + 8, GetU64(file, 64 + 8));
  Seal(file, sections.size());
  EXPECT_EQ(LoadAll(file).code(), Code::kCorrupt);
  // 64 bytes more between two sections, all else consistent.
  file = Assemble(sections);
  const size_t last = 64 + (sections.size() - 1) * 64;
  const uint64_t offset = GetU64(file, last + 8);
  file.insert(file.begin() + static_cast<ptrdiff_t>(offset), 64, 0);
  PutU64(file, last + 8, offset + 64);
  PutU64(file, 24, file.size());
  Seal(file, sections.size());
  EXPECT_EQ(LoadAll(file).code(), Code::kCorrupt);
}

TEST(DamageTest, ValuesBehindGoodChecksumsAreChecked) {
  const std::vector<RawSection> good = Disassemble(MustEncode(FullParts(), RandomBytes(100, 1)));
  for (SectionKind kind : {SectionKind::kTokens, SectionKind::kPositions}) {
    std::vector<RawSection> sections = good;
    for (RawSection& s : sections) {
      if (s.entry.kind == static_cast<uint32_t>(kind)) s.payload[3] |= 0x80;  // negative
    }
    EXPECT_EQ(LoadAll(Assemble(sections)).code(), Code::kCorrupt);
    for (RawSection& s : sections) {
      if (s.entry.kind == static_cast<uint32_t>(kind)) s.payload.resize(s.payload.size() - 4);
    }
    EXPECT_EQ(LoadAll(Assemble(sections)).code(), Code::kCorrupt) << "one fewer";
  }
  // A forged content identity passes the checksums and not VerifyContent.
  std::vector<RawSection> sections = good;
  std::string json(sections[0].payload.begin(), sections[0].payload.end());
  const size_t at = json.find("\"id\":\"") + 6;
  json[at] = json[at] == '0' ? '1' : '0';
  sections[0].payload.assign(json.begin(), json.end());
  const Bytes file = Assemble(sections);
  const auto reader = Reader::FromBytes(file, "forged.kvg");
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->VerifyPages().ok());
  EXPECT_EQ(reader->VerifyContent().code(), Code::kCorrupt);
}

TEST(DamageTest, ALinkIsNotFollowed) {
  const std::string dir = ::testing::TempDir();
  const std::string target = JoinPath(dir, "kvgraft_damage_target.kvg");
  const std::string link = JoinPath(dir, "kvgraft_damage_link.kvg");
  const Bytes file = MustEncode(SmallParts(), RandomBytes(100, 1));
  ASSERT_TRUE(WriteFileAtomic(target, AsChars(file)).ok());
  std::remove(link.c_str());
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  EXPECT_TRUE(Reader::Open(target).ok());
  EXPECT_EQ(Reader::Open(link).status().code(), Code::kInvalidArgument);
  std::remove(link.c_str());
  std::remove(target.c_str());
}

}  // namespace
}  // namespace kvgraft::artifact
