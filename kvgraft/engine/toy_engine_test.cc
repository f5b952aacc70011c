#include "kvgraft/engine/toy_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kvgraft/engine/toy_testing.h"

namespace kvgraft::engine {
namespace {

using ::testing::HasSubstr;

// Decodes tokens in random parts of 1 .. longest tokens; the logits of the last one.
std::vector<float> DecodeInParts(Context& context, std::span<const Token> tokens, Schedule schedule,
                                 std::mt19937_64& random, size_t longest) {
  std::vector<float> last;
  while (!tokens.empty()) {
    const size_t n = std::min<size_t>(tokens.size(), 1 + random() % longest);
    last = LastLogits(context, tokens.first(n), schedule);
    tokens = tokens.subspan(n);
  }
  return last;
}

struct SplitCase {
  uint32_t kernel_quantum;
  Attention attention;
  uint32_t sliding_window;
};

class ToySplitTest : public ::testing::TestWithParam<SplitCase> {};

// The padding rule: any split, any content of the padding rows, any number of threads.
TEST_P(ToySplitTest, PaddedSplitsAreIdentical) {
  const SplitCase& p = GetParam();
  auto model =
      NewToyModel({.sliding_window = p.sliding_window, .kernel_quantum = p.kernel_quantum});
  const ContextOptions options{.n_ctx = 512, .n_ubatch = 128, .attention = p.attention};
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 8; ++trial) {
    const auto tokens = RandomTokens(random(), 33 + random() % 300);
    auto cold = NewContext(*model, options);
    const auto cold_logits = LastLogits(*cold, tokens);
    auto split = NewContext(*model, options);
    ASSERT_TRUE(split->SetThreads(1 + trial % 2).ok());
    if (trial % 2 == 1) split->SetPaddingSeed(random());
    const auto split_logits =
        DecodeInParts(*split, tokens, Schedule::kExact, random, trial < 4 ? 60 : 3);
    EXPECT_TRUE(Same(cold_logits, split_logits)) << "trial " << trial;
    EXPECT_EQ(Image(*cold), Image(*split)) << "trial " << trial;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ToySplitTest,
                         ::testing::Values(SplitCase{1, Attention::kOff, 0},
                                           SplitCase{8, Attention::kOff, 0},
                                           SplitCase{8, Attention::kOn, 0},
                                           SplitCase{4, Attention::kOff, 0},
                                           SplitCase{8, Attention::kOff, 48}));

// Without padding, with too small a quantum, or on a machine where none holds, the bits do differ,
// by rounding only: otherwise every test of the rule would pass by itself.
// llama.cpp#28368: reuse of a prefix alone changes log-probabilities.
TEST(ToyEngine, UnpaddedSplitsDiffer) {
  struct Case {
    uint32_t kernel_quantum, row_quantum;
    Schedule schedule;
  };
  for (const Case& c : {Case{8, 8, Schedule::kFast}, Case{8, 4, Schedule::kExact},
                        Case{8, 1, Schedule::kExact}, Case{0, 8, Schedule::kExact}}) {
    auto model = NewToyModel({.kernel_quantum = c.kernel_quantum});
    const ContextOptions options{.n_ctx = 512, .row_quantum = c.row_quantum};
    const auto tokens = RandomTokens(3, 203);
    auto cold = NewContext(*model, options);
    const auto cold_logits = LastLogits(*cold, tokens);
    auto split = NewContext(*model, options);
    std::mt19937_64 random(5);
    const auto split_logits = DecodeInParts(*split, tokens, c.schedule, random, 30);
    EXPECT_NE(Image(*cold), Image(*split)) << c.kernel_quantum << "/" << c.row_quantum;
    EXPECT_FALSE(Same(cold_logits, split_logits)) << c.kernel_quantum << "/" << c.row_quantum;
    const double difference = MaxDifference(cold_logits, split_logits);
    EXPECT_GT(difference, 1e-8);
    EXPECT_LT(difference, 0.1);
  }
}

TEST(ToyEngine, SingleRowsDependOnThreadsWithAttentionOnOnly) {
  auto model = NewToyModel({.kernel_quantum = 8});
  const auto tokens = RandomTokens(4, 64);
  for (Attention attention : {Attention::kOn, Attention::kOff}) {
    std::vector<std::vector<float>> single, padded;
    for (uint32_t threads : {1u, 2u}) {
      auto context = NewContext(*model, {.n_ctx = 128, .attention = attention});
      ASSERT_TRUE(context->SetThreads(threads).ok());
      padded.push_back(LastLogits(*context, tokens));
      single.push_back(LastLogits(*context, RandomTokens(5, 1), Schedule::kFast));
    }
    EXPECT_TRUE(Same(padded[0], padded[1]));
    EXPECT_EQ(Same(single[0], single[1]), attention == Attention::kOff);
  }
}

TEST(ToyEngine, LogitsOfSeveralRowsAcrossBatches) {
  auto model = NewToyModel({.kernel_quantum = 8});
  const auto tokens = RandomTokens(6, 50);
  auto context = NewContext(*model, {.n_ctx = 64, .n_ubatch = 16});
  Logits all;
  ASSERT_TRUE(context->Decode(tokens, Schedule::kExact, 21, &all).ok());
  ASSERT_EQ(all.rows, 21u);
  ASSERT_EQ(all.n_vocab, model->info().n_vocab);
  auto single = NewContext(*model, {.n_ctx = 64, .n_ubatch = 16});
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = LastLogits(*single, std::span(tokens).subspan(i, 1));
    if (i < 29) continue;
    const auto got = all.row(i - 29);
    EXPECT_TRUE(Same(row, std::vector<float>(got.begin(), got.end()))) << i;
  }
}

TEST(ToyEngine, UnrelatedTrafficChangesNothing) {
  auto model = NewToyModel({.kernel_quantum = 8});
  const auto tokens = RandomTokens(50, 150);
  auto quiet = NewContext(*model, {.n_ctx = 256});
  auto busy = NewContext(*model, {.n_ctx = 256});
  ASSERT_TRUE(busy->RunUnrelatedTraffic(1, 300).ok());
  ASSERT_TRUE(busy->Decode(std::span(tokens).first(70), Schedule::kExact, 0, nullptr).ok());
  ASSERT_TRUE(busy->RunUnrelatedTraffic(2, 90).ok());
  EXPECT_EQ(busy->n_past(), 70);
  EXPECT_TRUE(Same(LastLogits(*quiet, tokens), LastLogits(*busy, std::span(tokens).subspan(70))));
  EXPECT_EQ(Image(*quiet), Image(*busy));
}

TEST(ToyEngine, WindowMasksWhatIsOutside) {
  auto model = NewToyModel({.sliding_window = 8});
  auto tokens = RandomTokens(61, 40);
  auto a = NewContext(*model);
  const auto before = LastLogits(*a, tokens);
  tokens[20] ^= 1;  // two layers reach 2 * 7 positions back from 39
  auto b = NewContext(*model);
  EXPECT_TRUE(Same(before, LastLogits(*b, tokens)));
  tokens[26] ^= 1;
  auto c = NewContext(*model);
  EXPECT_FALSE(Same(before, LastLogits(*c, tokens)));
}

TEST(ToyEngine, ProgressInterruptsBetweenBatches) {
  auto model = NewToyModel({.kernel_quantum = 8});
  const auto tokens = RandomTokens(70, 100);
  auto context = NewContext(*model, {.n_ctx = 128, .n_ubatch = 16});
  std::vector<size_t> seen;
  const Status status =
      context->Decode(tokens, Schedule::kExact, 0, nullptr, [&](size_t done, size_t total) {
        EXPECT_EQ(total, 100u);
        seen.push_back(done);
        return done < 48;
      });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(seen, (std::vector<size_t>{16, 32, 48}));
  EXPECT_EQ(context->n_past(), 48);
  auto cold = NewContext(*model, {.n_ctx = 128});
  EXPECT_TRUE(Same(LastLogits(*cold, tokens), LastLogits(*context, std::span(tokens).subspan(48))));
}

TEST(ToyEngine, FailingDecodeLeavesAPrefix) {
  auto model = NewToyModel({.kernel_quantum = 8, .fail_decode_after = 40});
  const auto tokens = RandomTokens(71, 64);
  auto context = NewContext(*model, {.n_ctx = 128, .n_ubatch = 16});
  EXPECT_EQ(context->Decode(tokens, Schedule::kExact, 0, nullptr).code(), Code::kInternal);
  EXPECT_EQ(context->n_past(), 32);
  auto sound = NewToyModel({.kernel_quantum = 8});
  auto cold = NewContext(*sound, {.n_ctx = 128});
  EXPECT_TRUE(Same(LastLogits(*cold, tokens), LastLogits(*context, std::span(tokens).subspan(32))));
}

// llama.cpp#10072: a context that is too small is an error of its own, before any computing.
TEST(ToyEngine, TokensThatDoNotFit) {
  auto model = NewToyModel();
  auto context = NewContext(*model, {.n_ctx = 32});
  ASSERT_TRUE(context->Decode(RandomTokens(72, 30), Schedule::kExact, 0, nullptr).ok());
  const Status status = context->Decode(RandomTokens(73, 3), Schedule::kExact, 0, nullptr);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("2 of 32"));
  EXPECT_EQ(context->n_past(), 30);
  EXPECT_TRUE(context->Decode(RandomTokens(73, 2), Schedule::kExact, 0, nullptr).ok());
}

TEST(ToyEngine, BadCallsAreRefused) {
  auto model = NewToyModel();
  auto context = NewContext(*model);
  const std::vector<Token> bad = {1, static_cast<Token>(model->info().n_vocab)};
  EXPECT_EQ(context->Decode(bad, Schedule::kExact, 0, nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->Decode(RandomTokens(1, 2), Schedule::kExact, 1, nullptr).code(),
            Code::kInvalidArgument);
  Logits logits;
  EXPECT_EQ(context->Decode(RandomTokens(1, 2), Schedule::kExact, 3, &logits).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(context->n_past(), 0);
  EXPECT_EQ(context->SetThreads(0).code(), Code::kInvalidArgument);
  auto embed = NewContext(*model, {.embeddings = true});
  EXPECT_EQ(embed->Decode(RandomTokens(1, 2), Schedule::kExact, 0, nullptr).code(),
            Code::kUnsupported);
}

TEST(ToyEngine, OptionsAreResolvedOrRefused) {
  auto model = NewToyModel();
  auto context = NewContext(*model, {.n_ctx = 0, .attention = Attention::kAuto});
  EXPECT_EQ(context->n_ctx(), model->info().n_ctx_train);
  EXPECT_GT(context->options().n_threads, 0u);
  EXPECT_EQ(context->options().attention, Attention::kOff);
  EXPECT_EQ(context->options().rope_freq_base, 10000.0f);
  EXPECT_EQ(context->options().rope_freq_scale, 1.0f);

  const auto refused = [&](const ContextOptions& options, const std::string& word) {
    const auto result = model->NewContext(options);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr(word));
  };
  refused({.n_ubatch = 60}, "multiple of row_quantum (8)");
  refused({.n_ubatch = 0}, "n_ubatch");
  refused({.row_quantum = 0}, "row_quantum");
  refused({.type_k = "f17"}, "f17");
  refused({.type_v = "q8_0"}, "attention");
  refused({.n_ctx = 1u << 30}, "n_ctx");
  refused({.rope_freq_base = -1}, "rope_freq_base");
}

// sglang#24758, vllm#56311 and others: whatever the bits depend on is a field of the identity.
TEST(ToyEngine, IdentityNamesWhatTheStateDependsOn) {
  auto model = NewToyModel();
  const StateIdentity base = NewContext(*model)->identity();
  const auto differs = [&](const ToyOptions& toy, const ContextOptions& options) {
    auto other = NewToyModel(toy);
    std::string fields;
    for (const auto& diff : DiffCompat(base, NewContext(*other, options)->identity()))
      fields += (fields.empty() ? "" : " ") + diff.field;
    return fields;
  };
  EXPECT_EQ(differs({.weight_seed = 2}, {}), "model.sha256");
  EXPECT_EQ(differs({.sliding_window = 64}, {}), "swa.full swa.window");
  EXPECT_EQ(differs({.tokenizer = "other"}, {}), "tokenizer.sha256");
  EXPECT_EQ(differs({}, {.attention = Attention::kOn}), "cache.attention cache.v_layout");
  EXPECT_EQ(differs({}, {.type_k = "f32"}), "cache.type_k");
  EXPECT_EQ(differs({}, {.type_v = "f32"}), "cache.type_v");
  EXPECT_EQ(differs({}, {.rope_freq_base = 500000}), "rope.freq_base");
  EXPECT_EQ(differs({}, {.rope_freq_scale = 0.5f}), "rope.freq_scale");
  // ik_llama.cpp#2212: what it does not depend on is none.
  EXPECT_EQ(differs({.name = "alias"}, {.n_ctx = 99, .n_ubatch = 64, .n_threads = 2}), "");
  EXPECT_EQ(differs({}, {.swa_full = false}), "");  // no window, no window cache
  auto window = NewToyModel({.sliding_window = 64});
  EXPECT_EQ(NewContext(*window)->identity().Get("swa.full"), "true");
  EXPECT_EQ(NewContext(*window, {.swa_full = false})->identity().Get("swa.full"), "false");
  auto rebuilt = NewToyModel({.build = "toy-2"});
  const auto build = DiffBuild(base, NewContext(*rebuilt)->identity());
  ASSERT_EQ(build.size(), 1u);
  EXPECT_EQ(build[0].field, "engine.build");
}

TEST(ToyEngine, RopeOptionsChangeTheState) {
  auto model = NewToyModel();
  const auto tokens = RandomTokens(80, 40);
  auto plain = NewContext(*model);
  auto scaled = NewContext(*model, {.rope_freq_scale = 0.5f});
  EXPECT_FALSE(Same(LastLogits(*plain, tokens), LastLogits(*scaled, tokens)));
  EXPECT_NE(Image(*plain), Image(*scaled));
}

TEST(ToyEngine, TokensAndText) {
  auto model = NewToyModel();
  const std::string text = "caf\xc3\xa9 <|end|>";
  const auto plain = model->Tokenize(text, true, false).value();
  EXPECT_EQ(plain.size(), 1 + text.size());
  EXPECT_EQ(plain[0], kToyBos);
  std::string back;
  for (Token t : plain) back += model->TokenText(t, false);
  EXPECT_EQ(back, text);
  const auto special = model->Tokenize(text, false, true).value();
  ASSERT_EQ(special.size(), 7u);
  EXPECT_EQ(special.back(), kToyEnd);
  EXPECT_TRUE(model->IsEndOfGeneration(kToyEnd));
  EXPECT_EQ(model->TokenText(kToyEnd, true), "<|end|>");
  EXPECT_EQ(model->TokenText(kToyEnd, false), "");
  EXPECT_EQ(model->TokenText(9999, true), "");
}

TEST(ToyEngine, ChatTemplate) {
  auto model = NewToyModel();
  const std::vector<ChatMessage> messages = {{"system", "Be brief."}, {"user", "Hi"}};
  EXPECT_EQ(model->ApplyChatTemplate(messages, true).value(),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n");
  auto bare = NewToyModel({.chat_template = false});
  EXPECT_FALSE(bare->info().has_chat_template);
  EXPECT_EQ(bare->ApplyChatTemplate(messages, true).status().code(), Code::kUnsupported);
}

TEST(ToyEngine, Embeddings) {
  auto model = NewToyModel();
  EXPECT_EQ(model->Embed("x").status().code(), Code::kUnsupported);
  auto pooled = NewToyModel({.pooled = true});
  const auto a = pooled->Embed("the cat sat").value();
  const auto b = pooled->Embed("the cat sits").value();
  ASSERT_EQ(a.size(), pooled->info().n_embd);
  double square = 0;
  for (float v : a) square += double{v} * v;
  EXPECT_NEAR(square, 1.0, 1e-5);
  EXPECT_TRUE(Same(a, pooled->Embed("the cat sat").value()));
  EXPECT_FALSE(Same(a, b));
}

}  // namespace
}  // namespace kvgraft::engine
