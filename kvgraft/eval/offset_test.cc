#include "kvgraft/eval/offset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvgraft/engine/toy_engine.h"

namespace kvgraft::eval {
namespace {

using ::testing::HasSubstr;

OffsetOptions Options() {
  OffsetOptions options;
  options.offsets = {1, 500};
  options.n_texts = 2;
  options.n_context = 128;
  options.n_scored = 16;
  options.context.n_threads = 2;
  return options;
}

// The toy's keys are F32: turned, they are the text's at the new position but for rounding, and the
// toy has nothing else that knows of positions.
TEST(Offset, MovedIsNearerThanTheModelsOwnDrift) {
  auto model = engine::NewToyModel({.kernel_quantum = 8});
  size_t calls = 0;
  const auto items =
      MeasureOffsets(*model, Options(), [&](const OffsetItem&, size_t done, size_t total) {
        EXPECT_EQ(done, ++calls);
        EXPECT_EQ(total, 4u);
        return true;
      });
  ASSERT_TRUE(items.ok()) << items.status().message();
  ASSERT_EQ(items->size(), 4u);
  for (const OffsetItem& item : *items) {
    EXPECT_EQ(item.n_scored, 16u);
    EXPECT_LT(item.moved.kl, 1e-8);
    EXPECT_LT(item.shift.kl, 1e-8);
    EXPECT_TRUE(item.has_shift);
    EXPECT_EQ(item.moved.top1, 16u);
  }
  const auto summary = Summarise(*items);
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[1].offset, 500);
  EXPECT_EQ(summary[1].texts, 2u);
  EXPECT_EQ(summary[1].tokens, 32u);
  EXPECT_EQ(summary[1].moved.top1, 1.0);
}

TEST(Offset, SummariesAreMeansOverTexts) {
  std::vector<OffsetItem> items(3);
  const double kls[] = {0.1, 0.2, 0.6};
  for (size_t i = 0; i < 3; ++i) {
    items[i].offset = 7;
    items[i].n_scored = 10;
    items[i].fresh.kl = kls[i] + 0.01;
    items[i].moved = {kls[i], kls[i] * 2, static_cast<uint32_t>(5 + i)};
    items[i].has_shift = i != 1;
  }
  const auto summary = Summarise(items);
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_NEAR(summary[0].moved.kl, 0.3, 1e-12);
  EXPECT_NEAR(summary[0].moved.kl_error, 0.15275, 1e-4);  // s / sqrt(3)
  EXPECT_NEAR(summary[0].moved.kl_max, 1.2, 1e-12);
  // The texts differ much, the arms on each of them by the same.
  EXPECT_NEAR(summary[0].moved_minus_fresh.mean, -0.01, 1e-12);
  EXPECT_NEAR(summary[0].moved_minus_fresh.error, 0, 1e-12);
  EXPECT_NEAR(summary[0].moved.top1, 0.6, 1e-12);
  EXPECT_FALSE(summary[0].has_shift);
  EXPECT_EQ(summary[0].tokens, 30u);
}

TEST(Offset, RefusesWhatCannotBe) {
  auto model = engine::NewToyModel();
  const auto refused = [&](auto change, const char* says) {
    OffsetOptions options = Options();
    change(options);
    const Status status = MeasureOffsets(*model, options).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(says));
  };
  refused([](OffsetOptions& o) { o.offsets = {0}; }, "offset 0");
  refused([](OffsetOptions& o) { o.offsets = {1 << 20}; }, "window");
  refused([](OffsetOptions& o) { o.n_context = 1; }, "1 tokens");
  refused([](OffsetOptions& o) { o.n_scored = 0; }, "1 .. 256");
  auto window = engine::NewToyModel({.sliding_window = 64});
  OffsetOptions options = Options();
  options.n_context = 100;
  EXPECT_THAT(MeasureOffsets(*window, options).status().message(), HasSubstr("multiple of 64"));
  EXPECT_EQ(MeasureOffsets(*model, Options(), [](auto&&...) { return false; }).status().code(),
            Code::kCancelled);
}

}  // namespace
}  // namespace kvgraft::eval
