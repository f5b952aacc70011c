// What the design relies on, measured against the installed engine with real models. When the
// engine changes, these tests tell which fact changed. Models that are not there are skipped.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kvgraft/eval/corpus.h"
#include "tests/models/models.h"

namespace kvgraft {
namespace {

using engine::Attention;
using engine::Context;
using engine::ContextOptions;
using engine::Logits;
using engine::Schedule;
using engine::Token;
using testing::NewContextOrFail;
using testing::SaveOrFail;

struct Outcome {
  std::vector<uint8_t> image;
  std::vector<float> last;
  bool operator==(const Outcome&) const = default;
};

ContextOptions Options(Attention attention, uint32_t quantum, bool swa_full = true) {
  ContextOptions options;
  options.n_ctx = 2304;
  options.attention = attention;
  options.row_quantum = quantum;
  options.swa_full = swa_full;
  return options;
}

// Decodes tokens up to each of `ends`; logits of the last rows of each part, `outputs` at most.
Outcome DecodeParts(Context& context, const std::vector<Token>& tokens,
                    const std::vector<size_t>& ends, Schedule schedule = Schedule::kExact,
                    size_t outputs = 1) {
  Outcome out;
  Logits logits;
  size_t done = static_cast<size_t>(context.n_past());
  for (size_t end : ends) {
    KVG_EXPECT_OK(context.Decode(std::span(tokens).subspan(done, end - done), schedule,
                                 std::min(outputs, end - done), &logits));
    done = end;
  }
  const auto row = logits.row(logits.rows - 1);
  out.last.assign(row.begin(), row.end());
  out.image = SaveOrFail(context);
  return out;
}

std::vector<size_t> OneByOne(size_t from, size_t to) {
  std::vector<size_t> ends = {from};
  for (size_t i = from + 1; i <= to; ++i) ends.push_back(i);
  return ends;
}

class Facts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = testing::RealPath(GetParam());
    if (path.empty()) {
      GTEST_SKIP() << "model " << GetParam() << " is not here: kvgraft models pull " << GetParam();
    }
    model_ = testing::LoadOrFail({.path = path});
    ASSERT_TRUE(model_);
  }

  std::vector<Token> Text(size_t n) {
    Random random(5);
    const std::string text = eval::Corpus().Draw(random, n * 8);
    Result<std::vector<Token>> tokens = model_->Tokenize(text, true, false);
    EXPECT_TRUE(tokens.ok());
    EXPECT_GE(tokens->size(), n) << "the built-in text is too short";
    tokens->resize(n);
    return *tokens;
  }

  std::unique_ptr<engine::Model> model_;
};

std::string ParamName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

class AllModels : public Facts {};
INSTANTIATE_TEST_SUITE_P(Real, AllModels,
                         ::testing::Values("smollm2-135m", "qwen2.5-coder-0.5b", "gemma3-270m"),
                         ParamName);
class SmolLm : public Facts {};
INSTANTIATE_TEST_SUITE_P(Real, SmolLm, ::testing::Values("smollm2-135m"), ParamName);
class Gemma : public Facts {};
INSTANTIATE_TEST_SUITE_P(Real, Gemma, ::testing::Values("gemma3-270m"), ParamName);

// "Flash attention off and every batch padded to a multiple of 8 rows: fully batch-invariant."
TEST_P(AllModels, PlainAttentionIsInvariantAt8Rows) {
  auto context = NewContextOrFail(*model_, Options(Attention::kOff, 8));
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = Text(321);
  const Outcome cold = DecodeParts(*context, tokens, {321});
  const std::vector<std::vector<size_t>> splits = {
      {320, 321}, {17, 100, 255, 321}, OneByOne(300, 321)};
  for (size_t i = 0; i < splits.size(); ++i) {
    KVG_ASSERT_OK(context->Clear());
    KVG_ASSERT_OK(context->SetThreads(i % 2 == 0 ? 1 : 2));
    context->SetPaddingSeed(i);
    EXPECT_TRUE(DecodeParts(*context, tokens, splits[i], Schedule::kExact, 1 + 7 * (i % 2)) == cold)
        << i;
  }
}

// "Inference as users run it is not batch-invariant": the engine's ordinary batches differ.
TEST_P(AllModels, OrdinaryBatchesAreNotInvariant) {
  auto context = NewContextOrFail(*model_, Options(Attention::kOff, 8));
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = Text(203);
  const Outcome whole = DecodeParts(*context, tokens, {203}, Schedule::kFast);
  bool all_equal = true;
  for (const std::vector<size_t>& ends : {std::vector<size_t>{180, 203}, OneByOne(193, 203)}) {
    KVG_ASSERT_OK(context->Clear());
    all_equal = all_equal && DecodeParts(*context, tokens, ends, Schedule::kFast) == whole;
  }
  EXPECT_FALSE(all_equal);
}

// "With flash attention on the quantum is 64 rows", and smaller quanta fail.
TEST_P(SmolLm, FlashAttentionIsInvariantAt64RowsAndNotBelow) {
  const std::vector<Token> tokens = Text(321);
  for (uint32_t quantum : {64u, 8u}) {
    auto context = NewContextOrFail(*model_, Options(Attention::kOn, quantum));
    ASSERT_TRUE(context);
    const Outcome cold = DecodeParts(*context, tokens, {321});
    KVG_ASSERT_OK(context->Clear());
    EXPECT_EQ(DecodeParts(*context, tokens, {17, 300, 321}) == cold, quantum == 64) << quantum;
  }
}

// "Restore is bit-exact": 1,500 tokens, and the next 16 steps give the same logits.
TEST_P(SmolLm, RestoreOf1500TokensIsBitExact) {
  auto context = NewContextOrFail(*model_, Options(Attention::kOff, 8));
  ASSERT_TRUE(context);
  const std::vector<Token> tokens = Text(1516);
  DecodeParts(*context, tokens, {1500});
  const std::vector<uint8_t> image = SaveOrFail(*context);
  const Outcome cold = DecodeParts(*context, tokens, OneByOne(1501, 1516));
  auto other = NewContextOrFail(*model_, Options(Attention::kOff, 8));
  ASSERT_TRUE(other);
  KVG_ASSERT_OK(other->LoadImage(image, 1500));
  EXPECT_TRUE(DecodeParts(*other, tokens, OneByOne(1501, 1516)) == cold);
}

// "The blob has no model identity and no checksum": the engine takes a flipped bit of the payload
// without a word. That is why nothing reaches it unverified.
TEST_P(SmolLm, TheEngineTakesADamagedPayload) {
  auto context = NewContextOrFail(*model_, Options(Attention::kOff, 8));
  ASSERT_TRUE(context);
  DecodeParts(*context, Text(32), {32});
  std::vector<uint8_t> image = SaveOrFail(*context);
  image[image.size() - 2] ^= 1;
  KVG_EXPECT_OK(context->LoadImage(image, 32));
  EXPECT_TRUE(SaveOrFail(*context) == image);
}

// "Sliding windows need two more rules": a full-size window cache, and states that end at a
// multiple of 64 tokens. Continued by 300 tokens in steps of 50.
TEST_P(Gemma, RestoredWindowsAreExactAtMultiplesOf64Only) {
  const std::vector<Token> tokens = Text(1836);
  auto steps = [](size_t from) {
    std::vector<size_t> ends;
    for (size_t end = from + 50; end <= from + 300; end += 50) ends.push_back(end);
    return ends;
  };
  struct Case {
    size_t at;
    bool swa_full, exact;
  };
  for (const Case& c :
       {Case{1536, true, true}, Case{1500, true, false}, Case{1536, false, false}}) {
    auto context = NewContextOrFail(*model_, Options(Attention::kOff, 8, c.swa_full));
    ASSERT_TRUE(context);
    DecodeParts(*context, tokens, {c.at});
    const std::vector<uint8_t> image = SaveOrFail(*context);
    const Outcome cold = DecodeParts(*context, tokens, steps(c.at));
    KVG_ASSERT_OK(context->LoadImage(image, static_cast<int>(c.at)));
    const Outcome warm = DecodeParts(*context, tokens, steps(c.at));
    EXPECT_EQ(warm == cold, c.exact) << c.at << (c.swa_full ? "" : " without swa_full");
  }
}

}  // namespace
}  // namespace kvgraft
