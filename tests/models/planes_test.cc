// Images as arrays on stock libllama: every kind of cache, every element type, both layouts of the
// values, and every kind of RoPE that the tiny models have.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kvgraft/graft/move.h"
#include "kvgraft/math/cells.h"
#include "tests/models/models.h"

namespace kvgraft {
namespace {

using engine::Attention;
using engine::Context;
using engine::ContextOptions;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using testing::LoadTiny;
using testing::NewContextOrFail;
using testing::RandomTokens;
using testing::SaveOrFail;

ContextOptions Options(const std::string& type_k = "f16", const std::string& type_v = "f16",
                       Attention attention = Attention::kOff) {
  ContextOptions options = testing::TinyContext();
  options.attention = attention;
  options.type_k = type_k;
  options.type_v = type_v;
  return options;
}

constexpr const char* kKinds[] = {"mha", "gqa", "mqa", "qwen2",  "qwen3",   "gemma3", "mistral3",
                                  "moe", "mla", "dsa", "linear", "llama31", "yarn",   "partial"};

class Planes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tiny, Planes, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param); });

// Reads every stream as numbers and writes them back.
void ExpectSameBytesAfterRewriting(Context& context, std::vector<uint8_t> image,
                                   const std::string& what) {
  const std::vector<uint8_t> before = image;
  auto view = context.ViewImage(MutableByteSpan(image));
  ASSERT_TRUE(view.ok()) << what << ": " << view.status().message();
  const KvView read = math::Readable(*view);
  for (size_t s = 0; s < view->streams.size(); ++s) {
    const size_t n = view->n_cells(s);
    std::vector<float> cells(n * view->layout->streams[s].width());
    KVG_ASSERT_OK(math::ReadCells(read, s, 0, n, cells));
    // Not nothing: the numbers are there, and finite.
    EXPECT_TRUE(std::any_of(cells.begin(), cells.end(), [](float x) { return x != 0; })) << what;
    EXPECT_TRUE(std::all_of(cells.begin(), cells.end(), [](float x) { return std::isfinite(x); }));
    KVG_ASSERT_OK(math::WriteCells(*view, s, 0, n, cells));
  }
  EXPECT_TRUE(image == before) << what;
}

TEST_P(Planes, NumbersAndBackAreTheSameBytes) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  const bool mla = std::string(GetParam()) == "mla";
  const std::tuple<const char*, const char*, Attention> caches[] = {
      {"f16", "f16", Attention::kOff},  {"f16", "f16", Attention::kOn},
      {"f32", "f32", Attention::kOff},  {"bf16", "bf16", Attention::kOff},
      {"q8_0", "q8_0", Attention::kOn}, {"q4_0", "f16", Attention::kOff},
      {"q5_1", "q4_1", Attention::kOn}, {"iq4_nl", "q5_0", Attention::kOn}};
  int n_done = 0;
  for (const auto& [type_k, type_v, attention] : caches) {
    auto context = model->NewContext(Options(type_k, type_v, attention));
    if (!context.ok()) continue;  // the engine has no such cache for this model
    if (mla && std::string(type_k)[0] != 'f' && std::string(type_k) != "bf16") continue;
    KVG_ASSERT_OK((*context)->Decode(RandomTokens(150, 1), Schedule::kExact, 0, nullptr));
    ExpectSameBytesAfterRewriting(**context, SaveOrFail(**context),
                                  std::string(GetParam()) + " " + type_k + "/" + type_v);
    ++n_done;
  }
  EXPECT_GE(n_done, 2);
}

// The engine stores quantised heads of 64 rotated by a Hadamard matrix: undone, they are the
// numbers of an F16 cache but for their rounding. Layer 0 does not depend on the cache.
TEST(Planes, QuantisedCachesHoldTheSameNumbers) {
  auto model = LoadTiny("qwen3");
  ASSERT_TRUE(model);
  auto half = NewContextOrFail(*model, Options("f16", "f16", Attention::kOn));
  auto quantised = NewContextOrFail(*model, Options("q8_0", "q8_0", Attention::kOn));
  ASSERT_TRUE(half && quantised);
  const std::vector<Token> tokens = RandomTokens(64, 6);
  KVG_ASSERT_OK(half->Decode(tokens, Schedule::kExact, 0, nullptr));
  KVG_ASSERT_OK(quantised->Decode(tokens, Schedule::kExact, 0, nullptr));
  const std::vector<uint8_t> a = SaveOrFail(*half), b = SaveOrFail(*quantised);
  const auto x = half->ViewImage(ByteSpan(a)), y = quantised->ViewImage(ByteSpan(b));
  ASSERT_TRUE(x.ok() && y.ok());
  int compared = 0;
  for (size_t s = 0; s < x->streams.size(); ++s) {
    if (x->layout->streams[s].layer != 0) continue;
    EXPECT_EQ(y->layout->streams[s].hadamard, 64u);
    const size_t n = x->n_cells(s) * x->layout->streams[s].width();
    std::vector<float> want(n), got(n);
    KVG_ASSERT_OK(math::ReadCells(*x, s, 0, x->n_cells(s), want));
    KVG_ASSERT_OK(math::ReadCells(*y, s, 0, y->n_cells(s), got));
    double apart = 0, size = 0;
    for (size_t i = 0; i < n; ++i) {
      apart += std::pow(double{got[i]} - want[i], 2);
      size += std::pow(double{want[i]}, 2);
    }
    EXPECT_LT(std::sqrt(apart / size), 0.01);
    ++compared;
  }
  EXPECT_EQ(compared, 2);  // keys and values
}

TEST_P(Planes, AnImageIsItsPositionsAndItsCells) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  for (const Attention attention : {Attention::kOff, Attention::kOn}) {
    auto context = NewContextOrFail(*model, Options("f16", "f16", attention));
    ASSERT_TRUE(context);
    KVG_ASSERT_OK(context->Decode(RandomTokens(128, 2), Schedule::kExact, 0, nullptr));
    const std::vector<uint8_t> image = SaveOrFail(*context);
    auto view = context->ViewImage(ByteSpan(image));
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_EQ(view->positions[0].front(), 0);
    EXPECT_EQ(view->positions[0].back(), 127);
    auto built = context->FormatImage(view->positions);
    ASSERT_TRUE(built.ok()) << built.status().message();
    EXPECT_EQ(built->size(), image.size());
    auto to = context->ViewImage(MutableByteSpan(*built));
    ASSERT_TRUE(to.ok()) << to.status().message();
    for (uint32_t table = 0; table < view->positions.size(); ++table) {
      const graft::Placement all[] = {{table, 0, view->positions[table].size(), 0, 0}};
      KVG_ASSERT_OK(graft::PlaceCells(*view, all, *to));
    }
    EXPECT_TRUE(std::ranges::equal(*built, image)) << GetParam();
  }
}

// The rotation of kvgraft against the engine's own, at the same position: layer 0's keys depend on
// their token alone. llama.cpp#4097: far moves turned to garbage with YaRN.
TEST_P(Planes, MovedKeysAreWhatTheEngineWritesThere) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, Options());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(128, 3);
  KVG_ASSERT_OK(context->Decode(tokens, Schedule::kExact, 0, nullptr));
  const std::vector<uint8_t> at_0 = SaveOrFail(*context);
  for (const Pos p : {1, 8, 1000, 3000}) {
    KVG_ASSERT_OK(context->StartAt(p));
    KVG_ASSERT_OK(context->Decode(tokens, Schedule::kExact, 0, nullptr));
    EXPECT_EQ(context->first_pos(), p);
    EXPECT_EQ(context->n_past(), p + 128);
    const std::vector<uint8_t> there = SaveOrFail(*context);
    auto want = context->ViewImage(ByteSpan(there));
    ASSERT_TRUE(want.ok()) << want.status().message();
    std::vector<uint8_t> moved = at_0;
    auto view = context->ViewImage(MutableByteSpan(moved));
    ASSERT_TRUE(view.ok()) << view.status().message();
    KVG_ASSERT_OK(graft::MoveKeys(&*view, p));
    EXPECT_EQ(view->positions, want->positions);
    KVG_ASSERT_OK(context->StorePositions(moved, view->positions));
    bool any = false;
    for (size_t s = 0; s < view->streams.size(); ++s) {
      const StreamSpec& spec = view->layout->streams[s];
      if (spec.rope < 0 || spec.layer != 0) continue;
      any = true;
      const size_t n = view->n_cells(s), width = spec.width();
      std::vector<float> ours(n * width), theirs(n * width);
      KVG_ASSERT_OK(math::ReadCells(math::Readable(*view), s, 0, n, ours));
      KVG_ASSERT_OK(math::ReadCells(*want, s, 0, n, theirs));
      // Each side rounds once: the state at 0 its components, ours the turned ones.
      float worst = 0;
      for (size_t i = 0; i < ours.size(); i += spec.head_dim) {
        float length = 0;
        for (size_t d = 0; d < spec.head_dim; ++d) {
          length = std::max(length, std::fabs(theirs[i + d]));
        }
        for (size_t d = 0; d < spec.head_dim; ++d) {
          worst = std::max(worst, std::fabs(ours[i + d] - theirs[i + d]) / length);
        }
      }
      EXPECT_LE(worst, 0x1p-10f) << GetParam() << " at " << p;
    }
    EXPECT_TRUE(any);
    // And the engine takes it.
    KVG_ASSERT_OK(context->LoadImageAt(moved, p, p + 128));
    Logits logits, cold;
    const std::vector<Token> more = RandomTokens(8, 4);
    KVG_ASSERT_OK(context->Decode(more, Schedule::kExact, 1, &logits));
    KVG_ASSERT_OK(context->LoadImageAt(there, p, p + 128));
    KVG_ASSERT_OK(context->Decode(more, Schedule::kExact, 1, &cold));
    double apart = 0, size = 0;
    for (size_t i = 0; i < cold.values.size(); ++i) {
      apart += std::pow(double{logits.values[i]} - cold.values[i], 2);
      size += std::pow(double{cold.values[i]}, 2);
    }
    EXPECT_LT(std::sqrt(apart / size), 0.02) << GetParam() << " at " << p;
  }
}

// An image from p on is not one from 0 on, and says so.
TEST(Planes, PositionsAreChecked) {
  auto model = LoadTiny("gqa");
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, Options());
  ASSERT_TRUE(context);
  KVG_ASSERT_OK(context->StartAt(100));
  KVG_ASSERT_OK(context->Decode(RandomTokens(20, 5), Schedule::kExact, 0, nullptr));
  const std::vector<uint8_t> image = SaveOrFail(*context);
  EXPECT_EQ(context->LoadImage(image, 20).code(), Code::kCorrupt);
  EXPECT_EQ(context->LoadImageAt(image, 99, 119).code(), Code::kCorrupt);
  KVG_ASSERT_OK(context->LoadImageAt(image, 100, 120));
  EXPECT_TRUE(SaveOrFail(*context) == image);
  EXPECT_EQ(context->StartAt(-1).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->Truncate(99).code(), Code::kInvalidArgument);
  KVG_ASSERT_OK(context->Truncate(110));
  EXPECT_EQ(context->n_past(), 110);
  KVG_ASSERT_OK(context->Truncate(100));
  EXPECT_EQ(context->first_pos(), 100);
  // Not ascending, or of another number of cells.
  EXPECT_EQ(context->FormatImage({{3, 2}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(context->FormatImage({{-1, 2}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(context->FormatImage({{1}, {1}}).status().code(), Code::kInvalidArgument);
  std::vector<uint8_t> copy = image;
  EXPECT_EQ(context->StorePositions(copy, {{1, 2, 3}}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(copy == image);
  copy.resize(copy.size() - 1);
  EXPECT_EQ(context->ViewImage(ByteSpan(copy)).status().code(), Code::kCorrupt);
}

TEST(Planes, LayoutsSayWhatTheModelsAre) {
  const auto layout = [](const char* kind) {
    auto model = LoadTiny(kind);
    auto context = NewContextOrFail(*model, Options());
    auto result = context->Layout();
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? **result : KvLayout();
  };
  const KvLayout gqa = layout("gqa");
  ASSERT_EQ(gqa.streams.size(), 4u);  // keys of two layers, then values
  EXPECT_EQ(gqa.streams[1].kind, StreamKind::kKey);
  EXPECT_EQ(gqa.streams[1].layer, 1u);
  EXPECT_EQ(gqa.streams[1].n_heads, 2u);
  EXPECT_EQ(gqa.streams[1].head_dim, 32u);
  EXPECT_EQ(gqa.streams[2].kind, StreamKind::kValue);
  EXPECT_EQ(gqa.streams[2].order, StreamOrder::kColumns);
  ASSERT_EQ(gqa.ropes.size(), 1u);
  EXPECT_EQ(gqa.ropes[0].pairing, RopePairing::kInterleaved);
  EXPECT_EQ(gqa.ropes[0].freq_base, 10000.0f);

  EXPECT_EQ(layout("qwen2").ropes[0].pairing, RopePairing::kHalfSplit);
  EXPECT_EQ(layout("linear").ropes[0].freq_scale, 0.25f);
  EXPECT_EQ(layout("llama31").ropes[0].freq_factors.size(), 16u);
  EXPECT_EQ(layout("yarn").ropes[0].ext_factor, 1.0f);
  EXPECT_EQ(layout("partial").ropes[0].n_rot, 8u);

  const KvLayout gemma = layout("gemma3");  // layer 5 of 7 is global
  EXPECT_EQ(gemma.tables, (std::vector{TableKind::kAll, TableKind::kWindow}));
  ASSERT_EQ(gemma.ropes.size(), 2u);
  for (const StreamSpec& s : gemma.streams) {
    EXPECT_EQ(s.table, s.layer == 5 ? 0u : 1u);
    if (s.rope < 0) continue;
    EXPECT_EQ(gemma.ropes[static_cast<size_t>(s.rope)].freq_base,
              s.layer == 5 ? 1000000.0f : 10000.0f);
  }

  // Six streams: latent and key of two layers, then an indexer key of each, rotated in halves.
  const KvLayout dsa = layout("dsa");
  ASSERT_EQ(dsa.streams.size(), 6u);
  EXPECT_EQ(dsa.tables, (std::vector{TableKind::kAll, TableKind::kIndexer}));
  for (const size_t i : {4u, 5u}) {
    const StreamSpec& s = dsa.streams[i];
    EXPECT_EQ(s.kind, StreamKind::kIndexerKey);
    EXPECT_EQ(s.table, 1u);
    EXPECT_EQ(s.hadamard, 0u);
    EXPECT_EQ(s.rope_hadamard, 64u);
    ASSERT_GE(s.rope, 0);
    EXPECT_EQ(dsa.ropes[static_cast<size_t>(s.rope)].pairing, RopePairing::kHalfSplit);
  }

  const KvLayout mla = layout("mla");
  ASSERT_EQ(mla.streams.size(), 4u);
  EXPECT_EQ(mla.streams[0].kind, StreamKind::kMlaLatent);
  EXPECT_EQ(mla.streams[0].head_dim, 64u);
  EXPECT_EQ(mla.streams[0].rope, -1);
  EXPECT_EQ(mla.streams[1].kind, StreamKind::kMlaRopeKey);
  EXPECT_EQ(mla.streams[1].row_offset, 64u);
  EXPECT_GE(mla.streams[1].rope, 0);
}

// What this version cannot turn into arrays is refused by its name, and its image can still be
// kept.
TEST(Planes, UnknownKindsAreRefusedByName) {
  const struct {
    const char* kind;
    const char* says;
  } cases[] = {{"longrope", "'longrope'"}};
  for (const auto& c : cases) {
    auto model = LoadTiny(c.kind);
    ASSERT_TRUE(model);
    auto context = NewContextOrFail(*model, Options());
    ASSERT_TRUE(context);
    KVG_ASSERT_OK(context->Decode(RandomTokens(64, 1), Schedule::kExact, 0, nullptr));
    const std::vector<uint8_t> image = SaveOrFail(*context);
    const Status status = context->ViewImage(ByteSpan(image)).status();
    EXPECT_EQ(status.code(), Code::kUnsupported) << c.kind;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << status.message();
    KVG_EXPECT_OK(context->LoadImage(image, 64));
  }
  // Positions of several dimensions are refused before that: such a state cannot be kept yet.
  auto model = LoadTiny("mrope");
  ASSERT_TRUE(model);
  EXPECT_NE(model->info().unsupported.find("M-RoPE"), std::string::npos);
  auto context = NewContextOrFail(*model, Options());
  ASSERT_TRUE(context);
  EXPECT_EQ(context->ImageBytes().status().code(), Code::kUnsupported);
  EXPECT_EQ(context->Layout().status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace kvgraft
