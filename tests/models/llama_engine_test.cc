// The engine contract on stock libllama, for every kind of attention state that it keeps: tiny
// random models with full, grouped and single KV heads, biases, q/k norms, sliding windows, MLA.
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/models/models.h"

namespace kvgraft {
namespace {

using engine::Attention;
using engine::Context;
using engine::ContextOptions;
using engine::Logits;
using engine::Model;
using engine::Schedule;
using engine::Token;
using testing::LoadTiny;
using testing::NewContextOrFail;
using testing::RandomTokens;
using testing::SaveOrFail;

ContextOptions SmallContext(Attention attention = Attention::kOff, uint32_t quantum = 8) {
  ContextOptions options = testing::TinyContext();
  options.attention = attention;
  options.row_quantum = quantum;
  return options;
}

// The last row of logits and the state after decoding in parts that end at `cuts`.
struct Outcome {
  std::vector<uint8_t> image;
  std::vector<float> last;
  bool operator==(const Outcome&) const = default;
};

Outcome DecodeParts(Context& context, const std::vector<Token>& tokens,
                    const std::vector<size_t>& cuts, size_t outputs) {
  Outcome out;
  Logits logits;
  size_t done = static_cast<size_t>(context.n_past());
  for (size_t end : cuts) {
    const size_t n = std::min(outputs, end - done);
    KVG_EXPECT_OK(
        context.Decode(std::span(tokens).subspan(done, end - done), Schedule::kExact, n, &logits));
    done = end;
  }
  const auto row = logits.row(logits.rows - 1);
  out.last.assign(row.begin(), row.end());
  out.image = SaveOrFail(context);
  return out;
}

class EveryKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Tiny, EveryKind,
                         ::testing::Values("mha", "gqa", "mqa", "qwen2", "qwen3", "gemma3",
                                           "mistral3", "moe", "mla", "dsa", "mamba", "lfm2"),
                         [](const auto& info) { return info.param; });

// design.md: plain attention and batches padded to 8 rows make any split give the same bits.
TEST_P(EveryKind, AnySplitGivesTheSameStateAndLogits) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(300, 7);
  const Outcome cold = DecodeParts(*context, tokens, {300}, 1);
  std::mt19937 random(3);
  for (int trial = 0; trial < 8; ++trial) {
    KVG_ASSERT_OK(context->Clear());
    KVG_ASSERT_OK(context->SetThreads(1 + trial % 2));
    KVG_ASSERT_OK(context->RunUnrelatedTraffic(random(), 30));
    context->SetPaddingSeed(random());
    std::vector<size_t> cuts;
    for (int i = 0; i < trial % 6; ++i) cuts.push_back(1 + random() % 299);
    for (size_t i = 0; trial % 3 == 0 && i < 20; ++i) cuts.push_back(280 + i);  // token by token
    cuts.push_back(300);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const Outcome split = DecodeParts(*context, tokens, cuts, trial % 2 == 0 ? 1 : 8);
    EXPECT_TRUE(split.image == cold.image) << "state, trial " << trial;
    EXPECT_TRUE(split.last == cold.last) << "logits, trial " << trial;
  }
}

// Without padding the same splits differ: the test above can fail.
TEST(Padding, IsWhatMakesSplitsAgree) {
  auto model = LoadTiny("gqa");
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext(Attention::kOff, 1));
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(300, 7);
  const Outcome cold = DecodeParts(*context, tokens, {300}, 1);
  KVG_ASSERT_OK(context->Clear());
  EXPECT_FALSE(DecodeParts(*context, tokens, {299, 300}, 1) == cold);
}

// The last layer and the output head see the rows with logits only: these are padded too. F32
// weights show it (1 row and 8 rows with logits take other kernels).
TEST(Padding, CoversRowsWithLogits) {
  auto model = LoadTiny("gqa");
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(100, 9);
  const Outcome one = DecodeParts(*context, tokens, {100}, 1);
  for (size_t outputs : {2, 7, 8, 9, 64, 65, 100}) {
    KVG_ASSERT_OK(context->Clear());
    EXPECT_TRUE(DecodeParts(*context, tokens, {100}, outputs).last == one.last) << outputs;
  }
}

// design.md: with flash attention the quantum is 64 rows.
TEST_P(EveryKind, FlashAttentionHoldsAt64Rows) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext(Attention::kOn, 64));
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(300, 7);
  const Outcome cold = DecodeParts(*context, tokens, {300}, 1);
  for (std::vector<size_t> cuts : {std::vector<size_t>{299, 300}, {7, 64, 65, 200, 300}}) {
    KVG_ASSERT_OK(context->Clear());
    EXPECT_TRUE(DecodeParts(*context, tokens, cuts, 1) == cold);
  }
}

// Restoring and going on equals a cold run, in this context and in a larger one (llama.cpp#730:
// logits are computed again, never taken from the state). For sliding windows at multiples of 64,
// wherever among them (llama.cpp#21769: the number of checkpoints changed the text).
TEST_P(EveryKind, RestoreThenContinueIsExact) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(500, 11);
  const Outcome cold = DecodeParts(*context, tokens, {500}, 1);
  for (size_t at : {size_t{64}, size_t{256}, size_t{320}, size_t{448}}) {
    KVG_ASSERT_OK(context->Clear());
    DecodeParts(*context, tokens, {at}, 1);
    const std::vector<uint8_t> image = SaveOrFail(*context);
    DecodeParts(*context, RandomTokens(700, 1), {700}, 1);
    KVG_ASSERT_OK(context->LoadImage(image, static_cast<int>(at)));
    EXPECT_EQ(context->n_past(), static_cast<int>(at));
    EXPECT_TRUE(SaveOrFail(*context) == image) << at;
    EXPECT_TRUE(DecodeParts(*context, tokens, {at + 1, 499, 500}, 1) == cold) << at;

    ContextOptions larger = SmallContext();
    larger.n_ctx = 2000;
    auto other = NewContextOrFail(*model, larger);
    ASSERT_TRUE(other);
    KVG_ASSERT_OK(other->LoadImage(image, static_cast<int>(at)));
    EXPECT_TRUE(DecodeParts(*other, tokens, {500}, 1) == cold) << "larger context, " << at;
  }
}

// llama.cpp#1263 (off by one), mlx-examples#977 (short prompts in a large context),
// llama.cpp#2350 (sizes by heads): every length, every head layout.
TEST_P(EveryKind, ImagesOfEdgeLengthsRoundTrip) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  ContextOptions options = SmallContext();
  options.n_ctx = 300;
  auto context = NewContextOrFail(*model, options);
  ASSERT_TRUE(context);
  // An empty sequence has an image (artifacts shorter than the alignment hold it); none loads it.
  EXPECT_FALSE(context->LoadImage(SaveOrFail(*context), 0).ok());
  const std::vector<Token> tokens = RandomTokens(300, 5);
  for (size_t n : {1, 2, 3, 299, 300}) {
    KVG_ASSERT_OK(context->Clear());
    DecodeParts(*context, tokens, {n}, 1);
    const std::vector<uint8_t> image = SaveOrFail(*context);
    KVG_ASSERT_OK(context->Clear());
    KVG_ASSERT_OK(context->LoadImage(image, static_cast<int>(n)));
    EXPECT_TRUE(SaveOrFail(*context) == image) << n;
  }
}

// A full-prompt hit decodes the last token again, once, on a state cut by one (mlxcel#1760).
TEST_P(EveryKind, DecodingTheLastTokenAgainGivesTheSameLogits) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(130, 5);
  const Outcome cold = DecodeParts(*context, tokens, {130}, 1);
  KVG_ASSERT_OK(context->Truncate(129));
  EXPECT_TRUE(DecodeParts(*context, tokens, {130}, 1) == cold);
}

// Malformed images: libllama asserts on some of them, so none may reach it. After each refusal the
// live sequence is as it was (llama.cpp#27068, #27530, #9173, #25452).
TEST_P(EveryKind, MalformedImagesAreRefusedAndNothingChanges) {
  auto model = LoadTiny(GetParam());
  ASSERT_TRUE(model);
  auto context = NewContextOrFail(*model, SmallContext());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(40, 5);
  DecodeParts(*context, tokens, {40}, 1);
  const std::vector<uint8_t> image = SaveOrFail(*context);
  auto refused = [&](const std::vector<uint8_t>& bytes, int n_tokens) {
    const Status status = context->LoadImage(bytes, n_tokens);
    return !status.ok() && context->n_past() == 40;
  };
  for (size_t n : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{16}, size_t{100},
                   image.size() / 2, image.size() - 1}) {
    EXPECT_TRUE(refused({image.begin(), image.begin() + static_cast<long>(n)}, 40)) << n;
  }
  std::vector<uint8_t> longer = image;
  longer.push_back(0);
  EXPECT_TRUE(refused(longer, 40));
  EXPECT_TRUE(refused(image, 39));
  EXPECT_TRUE(refused(image, 41));
  EXPECT_TRUE(refused(image, 0));
  EXPECT_TRUE(refused(image, -1));
  // Every byte of the header and of the cell table, then the header of the first layer. A state
  // that is recurrent alone has a head of 20 bytes for a table.
  const bool cells = GetParam() != "mamba";
  const size_t header = cells ? 16 + 40 * 12 + 8 + 12 : 8 + 20 + 12;
  for (size_t i = 0; i < header; ++i) {
    std::vector<uint8_t> damaged = image;
    damaged[i] ^= 0x40;
    EXPECT_TRUE(refused(damaged, 40)) << "byte " << i;
  }
  for (uint32_t count : {0x80000000u, 0xffffffffu, 1025u, 41u, 39u, 0u}) {
    std::vector<uint8_t> lying = image;
    std::memcpy(lying.data() + (cells ? 12 : 8), &count, 4);
    EXPECT_TRUE(refused(lying, 40)) << count;
  }
  EXPECT_TRUE(SaveOrFail(*context) == image);
}

TEST(Context, RefusesWhatDoesNotFitBeforeComputing) {
  auto model = LoadTiny("gqa");
  ASSERT_TRUE(model);
  ContextOptions options = SmallContext();
  options.n_ctx = 64;
  auto context = NewContextOrFail(*model, options);
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(65, 5);
  const Status status = context->Decode(tokens, Schedule::kExact, 0, nullptr);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_NE(status.message().find("-c 65"), std::string::npos) << status.message();
  EXPECT_EQ(context->n_past(), 0);
  EXPECT_EQ(context->Decode(std::vector<Token>{272}, Schedule::kExact, 0, nullptr).code(),
            Code::kInvalidArgument);
  KVG_EXPECT_OK(context->Decode(std::span(tokens).first(64), Schedule::kExact, 0, nullptr));
}

TEST(Context, CanBeInterruptedAndGoOn) {
  auto model = LoadTiny("gqa");
  ASSERT_TRUE(model);
  ContextOptions options = SmallContext();
  options.n_ubatch = 64;
  auto context = NewContextOrFail(*model, options);
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(400, 5);
  const Outcome cold = DecodeParts(*context, tokens, {400}, 1);
  KVG_ASSERT_OK(context->Clear());
  const Status status = context->Decode(tokens, Schedule::kExact, 0, nullptr,
                                        [](size_t done, size_t) { return done < 128; });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(context->n_past(), 128);
  EXPECT_TRUE(DecodeParts(*context, tokens, {400}, 1) == cold);
}

// A restored sliding-window state holds its last window only (llama.cpp#28194, #21510).
TEST(SlidingWindow, RefusesToCutBelowWhatARestoredStateHolds) {
  auto model = LoadTiny("gemma3");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->info().sliding_window, 64u);
  EXPECT_EQ(model->info().state_alignment, 64u);
  auto context = NewContextOrFail(*model, SmallContext());
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = RandomTokens(256, 5);
  DecodeParts(*context, tokens, {256}, 1);
  const std::vector<uint8_t> image = SaveOrFail(*context);
  KVG_EXPECT_OK(context->Truncate(100));  // computed here: everything is there
  KVG_ASSERT_OK(context->LoadImage(image, 256));
  const Status status = context->Truncate(100);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("not reusable before position"), std::string::npos);
  EXPECT_EQ(context->n_past(), 256);

  KVG_ASSERT_OK(context->Clear());  // a prompt shorter than the window starts at 0
  DecodeParts(*context, tokens, {60}, 1);
  const std::vector<uint8_t> small = SaveOrFail(*context);
  KVG_ASSERT_OK(context->LoadImage(small, 60));
  KVG_EXPECT_OK(context->Truncate(10));
}

TEST(CacheTypes, EveryTypeRoundTripsAndEntersTheIdentity) {
  auto model = LoadTiny("qwen3");  // heads of 64: quantised caches are rotated
  ASSERT_TRUE(model);
  const std::vector<Token> tokens = RandomTokens(200, 5);
  for (const char* type :
       {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}) {
    ContextOptions options = SmallContext(Attention::kOn, 64);
    options.type_k = options.type_v = type;
    auto context = NewContextOrFail(*model, options);
    ASSERT_TRUE(context) << type;
    const Outcome cold = DecodeParts(*context, tokens, {200}, 1);
    KVG_ASSERT_OK(context->Clear());
    DecodeParts(*context, tokens, {150}, 1);
    const std::vector<uint8_t> image = SaveOrFail(*context);
    KVG_ASSERT_OK(context->LoadImage(image, 150));
    EXPECT_TRUE(DecodeParts(*context, tokens, {200}, 1) == cold) << type;
    EXPECT_EQ(context->identity().Get("cache.type_k"), type);
  }
  ContextOptions options = SmallContext(Attention::kOff, 8);
  options.type_v = "q8_0";
  EXPECT_EQ(model->NewContext(options).status().code(), Code::kInvalidArgument);
  options.type_v = "q9_0";
  const Status status = model->NewContext(options).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("iq4_nl"), std::string::npos) << status.message();
}

// sglang#24758, vllm#55904, #56311, llama.cpp#26207, vllm#44250: each of these must differ in the
// compat identity; and what may differ (ik_llama.cpp#2212: threads, batch, larger ctx) must not.
TEST(Identity, DiffersByWhatTheStateDependsOn) {
  auto model = LoadTiny("gqa");
  auto other = LoadTiny("gqa-other");
  ASSERT_TRUE(model && other);
  const StateIdentity base = NewContextOrFail(*model, SmallContext())->identity();
  auto diff = [&](Model& m, const ContextOptions& o) {
    std::string fields;
    for (const IdentityDiff& d : DiffCompat(base, NewContextOrFail(m, o)->identity())) {
      fields += d.field + " ";
    }
    return fields;
  };
  EXPECT_EQ(diff(*model, SmallContext()), "");
  ContextOptions same = SmallContext(Attention::kOff, 16);
  same.n_ctx = 2000, same.n_threads = 1, same.n_ubatch = 512;
  EXPECT_EQ(diff(*model, same), "");
  EXPECT_EQ(diff(*other, SmallContext()), "model.sha256 ");
  EXPECT_EQ(diff(*model, SmallContext(Attention::kOn, 64)), "cache.attention cache.v_layout ");
  ContextOptions rope = SmallContext();
  rope.rope_freq_base = 20000;
  EXPECT_EQ(diff(*model, rope), "rope.freq_base ");
  ContextOptions types = SmallContext();
  types.type_k = "q8_0";
  EXPECT_EQ(diff(*model, types), "cache.rotation_k cache.type_k ");
  auto tenant = testing::LoadOrFail({.path = testing::TinyPath("gqa"), .tenant = "b"});
  EXPECT_EQ(diff(*tenant, SmallContext()), "tenant ");
}

TEST(Identity, NamesAdaptersByContentAndScale) {
  auto with = [](const std::string& kind, float scale) {
    auto model = testing::LoadOrFail(
        {.path = testing::TinyPath("gqa"), .adapters = {{testing::TinyPath(kind), scale}}});
    auto context = NewContextOrFail(*model, SmallContext());
    const std::string id = context->identity().Get("adapters");
    const std::vector<float> last = DecodeParts(*context, RandomTokens(20, 1), {20}, 1).last;
    return std::make_pair(id, last);
  };
  const auto a = with("lora-a", 1.0f), half = with("lora-a", 0.5f), b = with("lora-b", 1.0f);
  const auto off = with("lora-a", 0.0f);
  EXPECT_NE(a.first, half.first);
  EXPECT_NE(a.first, b.first);
  EXPECT_EQ(off.first, "none");  // loaded but not applied (LMCache#2961)
  EXPECT_NE(a.second, b.second);
  EXPECT_NE(a.second, half.second);
}

TEST(Embedding, PooledModelsEmbedAndOthersSayWhyNot) {
  auto bert = LoadTiny("bert");
  auto gqa = LoadTiny("gqa");
  ASSERT_TRUE(bert && gqa);
  EXPECT_TRUE(bert->info().has_pooling);
  EXPECT_FALSE(bert->info().unsupported.empty());
  Result<std::vector<float>> one = bert->Embed("state and graft");
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->size(), 64u);
  double norm = 0;
  for (float v : *one) norm += static_cast<double>(v) * v;
  EXPECT_NEAR(norm, 1.0, 1e-5);
  EXPECT_EQ(*bert->Embed("state and graft"), *one);
  EXPECT_NE(*bert->Embed("something else"), *one);
  EXPECT_EQ(bert->NewContext(SmallContext()).status().code(), Code::kUnsupported);
  EXPECT_EQ(gqa->Embed("text").status().code(), Code::kUnsupported);
}

TEST(LoadModel, SaysWhatIsWrong) {
  EXPECT_EQ(engine_llama::LoadModel({.path = "/nonexistent.gguf"}).status().code(),
            Code::kNotFound);
  const std::string path = ::testing::TempDir() + "kvgraft-broken.gguf";
  KVG_ASSERT_OK(WriteFileAtomic(path, "GGUX not a model"));
  EXPECT_EQ(engine_llama::LoadModel({.path = path}).status().code(), Code::kCorrupt);
  Result<std::string> whole = ReadFile(testing::TinyPath("gqa"), 1 << 24);
  ASSERT_TRUE(whole.ok());
  KVG_ASSERT_OK(WriteFileAtomic(path, whole->substr(0, whole->size() / 2)));
  const Status cut = engine_llama::LoadModel({.path = path}).status();
  EXPECT_EQ(cut.code(), Code::kCorrupt) << cut.message();
}

// The hash cache must never answer for other bytes under the same path (vllm#49261).
TEST(LoadModel, HashesContentNotNames) {
  const std::string dir = ::testing::TempDir() + "kvgraft-hash-test";
  const std::string path = dir + "/model.gguf";
  KVG_ASSERT_OK(MakePrivateDirs(dir));
  std::string seen[3];
  const char* kinds[] = {"gqa", "gqa-other", "gqa"};
  for (int i = 0; i < 3; ++i) {
    Result<std::string> bytes = ReadFile(testing::TinyPath(kinds[i]), 1 << 24);
    ASSERT_TRUE(bytes.ok());
    KVG_ASSERT_OK(WriteFileAtomic(path, *bytes));
    for (int twice = 0; twice < 2; ++twice) {
      auto model = testing::LoadOrFail({.path = path, .hash_cache_dir = dir});
      ASSERT_TRUE(model);
      seen[i] = NewContextOrFail(*model, SmallContext())->identity().Get("model.sha256");
    }
  }
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(Vocabulary, UsersTextNeverBecomesSpecialTokens) {
  auto model = LoadTiny("gqa");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->Tokenize("</s>", false, true)->size(), 1u);
  EXPECT_GT(model->Tokenize("</s>", false, false)->size(), 1u);
  EXPECT_EQ(model->Tokenize("", false, false)->size(), 0u);
  EXPECT_EQ(model->Tokenize("a", true, false)->front(), 1);
  EXPECT_TRUE(model->IsEndOfGeneration(2));
  EXPECT_EQ(model->TokenText(2, false), "");
  EXPECT_EQ(model->TokenText(2, true), "</s>");
}

}  // namespace
}  // namespace kvgraft
