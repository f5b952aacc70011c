#include "kvgraft/engine/toy_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvgraft/engine/toy_testing.h"

namespace kvgraft::engine {
namespace {

using ::testing::HasSubstr;

// llama.cpp#1263: off by one for n_tokens in {0, 1, 2, n_ctx-1, n_ctx}. mlx-examples#977: short
// prompts in a large context. llama.cpp#2350: the size of a state under grouped-query attention.
TEST(ToyImage, ImagesRoundTrip) {
  auto model = NewToyModel({.kernel_quantum = 8});
  for (Attention attention : {Attention::kOff, Attention::kOn}) {
    const ContextOptions options{.n_ctx = 100, .n_ubatch = 64, .attention = attention};
    for (Pos n : {0, 1, 2, 3, 64, 99, 100}) {
      const auto tokens = RandomTokens(10 + n, n);
      auto from = NewContext(*model, options);
      ASSERT_TRUE(from->Decode(tokens, Schedule::kExact, 0, nullptr).ok());
      const auto image = Image(*from);
      EXPECT_LE(image.size(), 24u + n * (4 + 2 * 2 * 16 * 4));

      ContextOptions larger = options;
      larger.n_ctx = 1000;
      auto to = NewContext(*model, larger);
      ASSERT_TRUE(to->RunUnrelatedTraffic(n, 150).ok());
      const Status loaded = to->LoadImage(image, n);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      EXPECT_EQ(to->n_past(), n);
      EXPECT_EQ(Image(*to), image);

      auto cold = NewContext(*model, larger);
      ASSERT_TRUE(cold->Decode(tokens, Schedule::kExact, 0, nullptr).ok());
      const auto more = RandomTokens(99, 40);
      EXPECT_TRUE(Same(LastLogits(*cold, more), LastLogits(*to, more))) << n;
      EXPECT_EQ(Image(*cold), Image(*to)) << n;
    }
  }
}

// llama-cpp-python#997: loading the smaller of two saved states.
TEST(ToyImage, LargeAndSmallImagesInTurn) {
  auto model = NewToyModel();
  auto context = NewContext(*model, {.n_ctx = 256});
  std::vector<std::vector<uint8_t>> images;
  for (Pos n : {200, 5}) {
    ASSERT_TRUE(context->Clear().ok());
    ASSERT_TRUE(context->Decode(RandomTokens(n, n), Schedule::kExact, 0, nullptr).ok());
    images.push_back(Image(*context));
  }
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_TRUE(context->LoadImage(images[turn % 2], turn % 2 == 0 ? 200 : 5).ok());
    EXPECT_EQ(Image(*context), images[turn % 2]);
  }
}

TEST(ToyImage, TruncateLeavesThePrefix) {
  auto model = NewToyModel({.kernel_quantum = 8});
  const auto tokens = RandomTokens(20, 120);
  auto context = NewContext(*model, {.n_ctx = 256});
  ASSERT_TRUE(context->Decode(tokens, Schedule::kExact, 0, nullptr).ok());
  ASSERT_TRUE(context->Truncate(77).ok());
  EXPECT_EQ(context->n_past(), 77);
  auto cold = NewContext(*model, {.n_ctx = 256});
  ASSERT_TRUE(cold->Decode(std::span(tokens).first(77), Schedule::kExact, 0, nullptr).ok());
  EXPECT_EQ(Image(*context), Image(*cold));
  EXPECT_EQ(context->Truncate(78).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->Truncate(-1).code(), Code::kInvalidArgument);
}

// mlxcel#1760, llama.cpp#730: on a full hit the last token is decoded again, at its own position,
// and gives the logits that the cold run gave.
TEST(ToyImage, LastTokenDecodedAgainAfterRestore) {
  auto model = NewToyModel({.kernel_quantum = 8});
  const auto tokens = RandomTokens(21, 90);
  auto cold = NewContext(*model, {.n_ctx = 256});
  const auto cold_logits = LastLogits(*cold, tokens);
  const auto image = Image(*cold);
  auto warm = NewContext(*model, {.n_ctx = 256});
  ASSERT_TRUE(warm->LoadImage(image, 90).ok());
  ASSERT_TRUE(warm->Truncate(89).ok());
  EXPECT_TRUE(Same(cold_logits, LastLogits(*warm, std::span(tokens).last(1))));
  EXPECT_EQ(Image(*warm), image);
}

// llama.cpp#27530, #9173: sizes that lie and images cut anywhere are refused, nothing is touched.
TEST(ToyImage, BadImagesAreRefusedAndTheSequenceKept) {
  auto model = NewToyModel();
  auto context = NewContext(*model, {.n_ctx = 16});
  ASSERT_TRUE(context->Decode(RandomTokens(30, 4), Schedule::kExact, 0, nullptr).ok());
  const auto image = Image(*context);
  for (size_t size = 0; size < image.size(); ++size)
    EXPECT_EQ(context->LoadImage(ByteSpan(image).first(size), 4).code(), Code::kCorrupt) << size;
  auto longer = image;
  longer.push_back(0);
  EXPECT_EQ(context->LoadImage(longer, 4).code(), Code::kCorrupt);
  for (size_t at = 0; at < 24 + 16; ++at) {  // header and positions
    auto flipped = image;
    flipped[at] ^= 0x40;
    EXPECT_EQ(context->LoadImage(flipped, 4).code(), Code::kCorrupt) << at;
  }
  for (Pos n : {0, 3, 5, 0x7fffffff})
    EXPECT_EQ(context->LoadImage(image, n).code(), Code::kCorrupt) << n;
  EXPECT_EQ(context->LoadImage(image, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->n_past(), 4);
  EXPECT_EQ(Image(*context), image);
}

TEST(ToyImage, ImageLargerThanTheContext) {
  auto model = NewToyModel();
  auto large = NewContext(*model, {.n_ctx = 64});
  ASSERT_TRUE(large->Decode(RandomTokens(31, 17), Schedule::kExact, 0, nullptr).ok());
  auto small = NewContext(*model, {.n_ctx = 16});
  ASSERT_TRUE(small->Decode(RandomTokens(32, 2), Schedule::kExact, 0, nullptr).ok());
  const Status status = small->LoadImage(Image(*large), 17);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("17 tokens"));
  EXPECT_THAT(status.message(), HasSubstr("16"));
  EXPECT_EQ(small->n_past(), 2);
}

// vllm#55904: the layout of V follows the attention mode, and the other one is not read as this.
TEST(ToyImage, ImageOfTheOtherLayoutIsRefused) {
  auto model = NewToyModel();
  auto on = NewContext(*model, {.n_ctx = 64, .attention = Attention::kOn});
  auto off = NewContext(*model, {.n_ctx = 64, .attention = Attention::kOff});
  EXPECT_EQ(on->identity().Get("cache.v_layout"), "rows");
  EXPECT_EQ(off->identity().Get("cache.v_layout"), "columns");
  for (Context* c : {on.get(), off.get()})
    ASSERT_TRUE(c->Decode(RandomTokens(33, 9), Schedule::kExact, 0, nullptr).ok());
  EXPECT_EQ(on->LoadImage(Image(*off), 9).code(), Code::kCorrupt);
  EXPECT_EQ(off->LoadImage(Image(*on), 9).code(), Code::kCorrupt);
}

// llama.cpp#27068: an engine that fails late leaves an empty, usable sequence.
TEST(ToyImage, FailingLoadLeavesAUsableContext) {
  auto sound = NewToyModel({.kernel_quantum = 8});
  auto failing = NewToyModel({.kernel_quantum = 8, .fail_load_image = true});
  auto from = NewContext(*sound, {.n_ctx = 128});
  ASSERT_TRUE(from->Decode(RandomTokens(40, 100), Schedule::kExact, 0, nullptr).ok());
  const auto image = Image(*from);
  auto context = NewContext(*failing, {.n_ctx = 128});
  ASSERT_TRUE(context->Decode(RandomTokens(41, 30), Schedule::kExact, 0, nullptr).ok());
  EXPECT_EQ(context->LoadImage(image, 100).code(), Code::kInternal);
  EXPECT_EQ(context->n_past(), 0);
  auto fresh = NewContext(*sound, {.n_ctx = 128});
  const auto prompt = RandomTokens(42, 50);
  EXPECT_TRUE(Same(LastLogits(*context, prompt), LastLogits(*fresh, prompt)));
  EXPECT_EQ(Image(*context), Image(*fresh));
}

// Sliding windows: what is restored at 64 n goes on exactly, anything else does not, nor does a
// cache that is not full-size.
TEST(ToyImage, SlidingWindowGoesOnExactlyFromAlignedImagesOnly) {
  auto model = NewToyModel({.sliding_window = 48, .kernel_quantum = 8});
  EXPECT_EQ(model->info().state_alignment, 64u);
  for (bool full : {true, false}) {
    const ContextOptions options{.n_ctx = 256, .swa_full = full};
    for (Pos n : {64, 128, 100}) {
      const auto tokens = RandomTokens(60, 180);
      auto cold = NewContext(*model, options);
      ASSERT_TRUE(cold->Decode(std::span(tokens).first(n), Schedule::kExact, 0, nullptr).ok());
      auto warm = NewContext(*model, options);
      ASSERT_TRUE(warm->LoadImage(Image(*cold), n).ok());
      const auto rest = std::span(tokens).subspan(n);
      EXPECT_EQ(Same(LastLogits(*cold, rest), LastLogits(*warm, rest)), full && n % 64 == 0) << n;
    }
  }
}

// llama.cpp#28194, #25452: what lies before a restored window is not there to go back to.
TEST(ToyImage, RestoredWindowCannotBeCutBeforeItsStart) {
  auto model = NewToyModel({.sliding_window = 48});
  const auto tokens = RandomTokens(62, 140);
  auto cold = NewContext(*model);
  ASSERT_TRUE(cold->Decode(std::span(tokens).first(128), Schedule::kExact, 0, nullptr).ok());
  auto warm = NewContext(*model);
  ASSERT_TRUE(warm->LoadImage(Image(*cold), 128).ok());
  ASSERT_TRUE(warm->Decode(std::span(tokens).subspan(128), Schedule::kExact, 0, nullptr).ok());
  EXPECT_EQ(warm->Truncate(100).code(), Code::kUnsupported);
  EXPECT_EQ(warm->n_past(), 140);
  EXPECT_TRUE(warm->Truncate(127).ok());
  EXPECT_TRUE(cold->Truncate(100).ok());
  ASSERT_TRUE(warm->Truncate(0).ok());
  EXPECT_TRUE(Same(LastLogits(*warm, tokens), LastLogits(*NewContext(*model), tokens)));
}

}  // namespace
}  // namespace kvgraft::engine
