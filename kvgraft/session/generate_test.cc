#include "kvgraft/session/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kvgraft/session/generate_testing.h"

namespace kvgraft::session {
namespace {

using namespace generate_testing;  // NOLINT: the tests of this file
using ::testing::HasSubstr;

// Drafts change the cost and nothing else: tokens, text, its pieces, the state that is left.
TEST(Generate, DraftsChangeNothing) {
  auto model = ExactModel();
  std::mt19937_64 random(1);
  uint64_t accepted = 0, rejected = 0, saved = 0, eog = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const Tokens prompt = RandomPrompt(random, 90);
    GenerateOptions options{.max_tokens = 1 + static_cast<uint32_t>(random() % 80)};
    if (trial % 3 == 1) options.sampling = Seeded(random(), 0.3f);
    if (trial % 3 == 2)
      options.sampling = {
          .temperature = 1.5f, .top_k = 0, .top_p = 1, .min_p = 0, .seed = random()};
    options.ignore_eos = trial % 5 == 0;
    options.drafts = false;
    const Seen without = Watch(*model, prompt, options);
    options.drafts = true;
    const Seen with = Watch(*model, prompt, options);
    SCOPED_TRACE(trial);
    ExpectSame(without, with);
    EXPECT_EQ(without.generation.drafted, 0u);
    accepted += with.generation.accepted;
    rejected += with.generation.drafted - with.generation.accepted;
    saved += without.generation.steps - with.generation.steps;
    eog += with.generation.end_of_generation;
  }
  // All of it happened.
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(rejected, 100u);
  EXPECT_GT(saved, 100u);
  EXPECT_GT(eog, 0u);
}

// What was generated exactly is what a cold prefill of the same tokens gives, bit for bit.
TEST(Generate, StateEqualsAColdPrefill) {
  auto model = ExactModel();
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 10; ++trial) {
    const Tokens prompt = RandomPrompt(random, 60);
    GenerateOptions options{.max_tokens = 50, .ignore_eos = trial % 2 == 0};
    options.sampling = Seeded(trial, trial % 3 == 0 ? 0.0f : 0.8f);
    const Seen seen = Watch(*model, prompt, options);
    Tokens all = prompt;
    all.insert(all.end(), seen.generation.tokens.begin(), seen.generation.tokens.end());
    if (!seen.generation.end_of_generation) all.pop_back();
    auto cold = NewContext(*model);
    ASSERT_TRUE(cold->Decode(all, Schedule::kExact, 0, nullptr).ok());
    EXPECT_EQ(Image(*cold), seen.image) << trial;
  }
}

// The counterpart: single rows leave other bits, so the test above can fail.
TEST(Generate, FastGenerationIsNotExact) {
  auto model = ExactModel();
  std::mt19937_64 random(3);
  const Tokens prompt = RandomPrompt(random, 60);
  const GenerateOptions options{.max_tokens = 50, .schedule = Schedule::kFast, .ignore_eos = true};
  const Seen fast = Watch(*model, prompt, options);
  EXPECT_EQ(fast.generation.drafted, 0u);
  EXPECT_EQ(fast.generation.steps, 49u);
  Tokens all = prompt;
  all.insert(all.end(), fast.generation.tokens.begin(), fast.generation.tokens.end() - 1);
  auto cold = NewContext(*model);
  ASSERT_TRUE(cold->Decode(all, Schedule::kExact, 0, nullptr).ok());
  EXPECT_NE(Image(*cold), fast.image);
}

// Text that repeats itself takes fewer batches than tokens.
TEST(Generate, RepetitionIsCheap) {
  auto model = ExactModel();
  const auto prompt = model->Tokenize("round and round", true, false).value();
  const Seen seen = Watch(*model, prompt, {.max_tokens = 300, .ignore_eos = true});
  ASSERT_EQ(seen.generation.tokens.size(), 300u);
  EXPECT_LT(seen.generation.steps, 250u);
  EXPECT_EQ(seen.generation.steps + seen.generation.accepted + 1, 300u);
}

// Drafts come from what the context holds before, too.
TEST(Generate, HistoryFeedsTheDrafts) {
  auto model = ExactModel();
  std::mt19937_64 random(4);
  const Tokens prompt = RandomPrompt(random, 60);
  const GenerateOptions options{.max_tokens = 60, .sampling = Seeded(9, 1.0f), .ignore_eos = true};
  const Seen first = Watch(*model, prompt, options);
  Tokens history = prompt;
  history.insert(history.end(), first.generation.tokens.begin(), first.generation.tokens.end());
  auto context = NewContext(*model);
  const auto again = Generate(*context, *model, history, prompt, options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->tokens, first.generation.tokens);
  EXPECT_GT(again->accepted, 30u);
  EXPECT_LT(again->steps, first.generation.steps / 2);
}

// With two rows to a batch there is room for one draft; longer ones are tried while they come true.
TEST(Generate, DraftsGrowWhileTheyComeTrue) {
  auto model = engine::NewToyModel({.kernel_quantum = 2});
  const ContextOptions two{.n_ctx = 512, .row_quantum = 2};
  std::mt19937_64 random(4);
  const Tokens prompt = RandomPrompt(random, 60);
  GenerateOptions options{.max_tokens = 60, .sampling = Seeded(9, 1.0f), .ignore_eos = true};
  options.drafts = false;
  const Seen without = Watch(*model, prompt, options, two);
  Tokens history = prompt;
  history.insert(history.end(), without.generation.tokens.begin(), without.generation.tokens.end());
  options.drafts = true;
  auto context = NewContext(*model, two);
  const auto with = Generate(*context, *model, history, prompt, options);
  ASSERT_TRUE(with.ok());
  EXPECT_EQ(with->tokens, without.generation.tokens);
  EXPECT_EQ(Image(*context), without.image);
  EXPECT_LT(with->steps, 25u);  // one draft a step would take 30

  // Where nothing repeats, one quantum stays what is tried: at most one row of a step is wasted.
  const Seen cold = Watch(*model, prompt, options, two);
  EXPECT_LE(cold.generation.drafted - cold.generation.accepted, cold.generation.steps);
}

TEST(Generate, EndOfGenerationLeavesAllTokensInTheContext) {
  auto model = ExactModel();
  std::mt19937_64 random(7);
  int n_ended = 0;
  uint64_t n_accepted = 0;
  for (int trial = 0; trial < 300 && n_ended < 5; ++trial) {
    const Tokens prompt = RandomPrompt(random, 30);
    GenerateOptions options{.max_tokens = 60, .sampling = Seeded(trial, 1.5f)};
    const Seen seen = Watch(*model, prompt, options);
    if (!seen.generation.end_of_generation) continue;
    ++n_ended;
    EXPECT_EQ(seen.generation.finish_reason, "stop");
    for (Token t : seen.generation.tokens) EXPECT_FALSE(model->IsEndOfGeneration(t));
    EXPECT_EQ(seen.generation.n_context, prompt.size() + seen.generation.tokens.size());
    // The same with a history whose draft contains the end of generation.
    Tokens history = prompt;
    history.insert(history.end(), seen.generation.tokens.begin(), seen.generation.tokens.end());
    history.push_back(engine::kToyEnd);
    auto context = NewContext(*model);
    const auto again = Generate(*context, *model, history, prompt, options);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->tokens, seen.generation.tokens);
    EXPECT_TRUE(again->end_of_generation);
    EXPECT_EQ(Image(*context), seen.image);
    n_accepted += again->accepted;

    options.ignore_eos = true;
    const Seen on = Watch(*model, prompt, options);
    ASSERT_GT(on.generation.tokens.size(), seen.generation.tokens.size());
    EXPECT_TRUE(model->IsEndOfGeneration(on.generation.tokens[seen.generation.tokens.size()]));
  }
  EXPECT_EQ(n_ended, 5);
  EXPECT_GT(n_accepted, 5u);
}

TEST(Generate, MaxTokens) {
  auto model = ExactModel();
  const Tokens prompt = {'a', 'b', 'c'};
  for (uint32_t n : {0u, 1u, 2u, 9u}) {
    const Seen seen = Watch(*model, prompt, {.max_tokens = n, .ignore_eos = true});
    EXPECT_EQ(seen.generation.tokens.size(), n);
    EXPECT_EQ(seen.generation.finish_reason, "length");
    EXPECT_EQ(seen.generation.n_context, 3 + (n == 0 ? 0 : n - 1));
  }
}

// llama.cpp#10072: a context that is full ends the generation, with what there is.
TEST(Generate, FullContext) {
  auto model = ExactModel();
  const Tokens prompt(10, 'a');
  for (bool drafts : {true, false}) {
    const Seen seen = Watch(
        *model, prompt, {.max_tokens = 100, .drafts = drafts, .ignore_eos = true}, {.n_ctx = 32});
    EXPECT_EQ(seen.generation.finish_reason, "length");
    EXPECT_EQ(seen.generation.tokens.size(), 23u);  // the last one is not decoded
    EXPECT_EQ(seen.generation.n_context, 32u);
    EXPECT_EQ(Join(seen.pieces), seen.generation.text);
  }
  auto context = NewContext(*model, {.n_ctx = 8});
  const auto too_long = Generate(*context, *model, {}, prompt, {});
  EXPECT_EQ(too_long.status().code(), Code::kExhausted);
  EXPECT_EQ(context->n_past(), 0);
}

TEST(Generate, OnTextCancels) {
  auto model = ExactModel();
  std::mt19937_64 random(8);
  const Tokens prompt = RandomPrompt(random, 40);
  const Seen whole = Watch(*model, prompt, {.max_tokens = 60, .ignore_eos = true});
  for (size_t pieces : {1u, 2u, 7u, 20u}) {
    size_t n = 0;
    GenerateOptions options{.max_tokens = 60, .ignore_eos = true};
    options.on_text = [&](std::string_view) { return ++n % pieces != 0; };
    const Seen seen = Watch(*model, prompt, options);
    EXPECT_EQ(seen.generation.finish_reason, "cancelled");
    EXPECT_EQ(seen.pieces.size(), pieces);
    const size_t n_tokens = seen.generation.tokens.size();
    ASSERT_LT(n_tokens, 60u);
    EXPECT_EQ(seen.generation.tokens,
              Tokens(whole.generation.tokens.begin(), whole.generation.tokens.begin() + n_tokens));
    EXPECT_EQ(seen.generation.n_context, prompt.size() + n_tokens - 1);
  }
}

TEST(Generate, PrefillCanBeInterrupted) {
  auto model = ExactModel();
  const Tokens prompt(100, 'x');
  auto context = NewContext(*model, {.n_ctx = 512, .n_ubatch = 16});
  const auto result = Generate(*context, *model, {}, prompt, {.max_tokens = 4},
                               [](size_t done, size_t) { return done < 32; });
  EXPECT_EQ(result.status().code(), Code::kCancelled);
  EXPECT_EQ(context->n_past(), 32);
  // The rest goes on from there.
  const auto rest =
      Generate(*context, *model, {}, std::span(prompt).subspan(32), {.max_tokens = 4});
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(rest->tokens, Watch(*model, prompt, {.max_tokens = 4}).generation.tokens);
}

// An engine that fails in the middle gives an error and leaves a usable prefix.
TEST(Generate, EngineFailureIsAnError) {
  auto failing = engine::NewToyModel({.kernel_quantum = 8, .fail_decode_after = 30});
  const Tokens prompt(20, 'q');
  auto context = NewContext(*failing);
  const auto result = Generate(*context, *failing, {}, prompt, {.max_tokens = 60});
  EXPECT_EQ(result.status().code(), Code::kInternal);
  EXPECT_GE(context->n_past(), 20);
  EXPECT_TRUE(context->Truncate(20).ok());
  const auto again = Generate(*context, *failing, {}, Tokens{'r'}, {.max_tokens = 2});
  EXPECT_TRUE(again.ok());
}

// mlxcel#1760, llama.cpp#730: the same prompt over a state that is already there (all but its last
// token) gives the same answer as the first time; nothing stale is sampled.
TEST(Generate, FullHitGivesTheSameAnswer) {
  auto model = ExactModel();
  std::mt19937_64 random(9);
  const Tokens prompt = RandomPrompt(random, 80);
  const GenerateOptions options{.max_tokens = 40, .ignore_eos = true};
  auto context = NewContext(*model);
  const auto first = Generate(*context, *model, {}, prompt, options);
  ASSERT_TRUE(first.ok());
  const auto n = static_cast<engine::Pos>(prompt.size());
  ASSERT_TRUE(context->Truncate(n - 1).ok());
  const auto second = Generate(*context, *model, std::span(prompt).first(prompt.size() - 1),
                               std::span(prompt).last(1), options);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->tokens, second->tokens);
}

TEST(Generate, BadOptionsAreRefusedBeforeAnythingIsDecoded) {
  auto model = ExactModel();
  auto context = NewContext(*model);
  const auto refused = [&](const GenerateOptions& options, const Tokens& prompt,
                           const std::string& word) {
    const auto result = Generate(*context, *model, {}, prompt, options);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr(word));
  };
  refused({}, {}, "prompt is empty");
  refused({.stop = {"a", ""}}, {1}, "stop string is empty");
  refused({.stop = std::vector<std::string>(17, "x")}, {1}, "17 stop strings");
  refused({.sampling = {.temperature = -1}}, {1}, "temperature");
  EXPECT_EQ(context->n_past(), 0);
}

}  // namespace
}  // namespace kvgraft::session
