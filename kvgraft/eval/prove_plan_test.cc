#include "kvgraft/eval/prove_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace kvgraft::eval {
namespace {

// Steps cover [first, end) in order, without gaps.
void ExpectCovers(const std::vector<Step>& steps, uint32_t first, uint32_t end) {
  uint32_t at = first;
  for (const Step& s : steps) {
    EXPECT_EQ(s.first, at);
    EXPECT_GT(s.count, 0u);
    at += s.count;
  }
  EXPECT_EQ(at, end);
}

TEST(PlanTest, StepsCoverThePromptWithinTheLimits) {
  for (const uint32_t alignment : {1u, 64u}) {
    for (uint32_t i = 0; i < 500; ++i) {
      const SamplePlan plan = PlanSample(5, i, {.alignment = alignment});
      EXPECT_GE(plan.n_tokens, 33u);
      EXPECT_LE(plan.n_tokens, 2048u);
      EXPECT_LT(plan.n_captured, plan.n_tokens);
      EXPECT_EQ(plan.n_captured == 0, plan.arm == "split") << plan.arm;
      if (plan.n_captured > 0) {
        EXPECT_GE(plan.n_captured, alignment);
      }
      ExpectCovers(plan.head, 0, plan.n_captured);
      ExpectCovers(plan.rest, plan.n_captured, plan.n_tokens);
      EXPECT_GE(plan.n_parts, 1u);
      EXPECT_LE(plan.n_parts, 6u);
      EXPECT_LE(plan.n_single, 48u);
      EXPECT_LE(plan.n_threads, 2u);
      uint32_t singles = 0;
      for (const auto& steps : {plan.head, plan.rest}) {
        for (const Step& s : steps) singles += s.one_by_one ? s.count : 0;
      }
      EXPECT_EQ(singles, plan.n_single);
    }
  }
}

TEST(PlanTest, FirstSamplesTakeTheBorders) {
  const uint32_t borders[] = {63, 64, 65, 255, 256, 257, 511, 512, 513};
  for (uint32_t i = 0; i < 9; ++i) EXPECT_EQ(PlanSample(9, i, {}).n_tokens, borders[i]);
  EXPECT_EQ(PlanSample(9, 0, {.min_tokens = 64, .max_tokens = 300}).n_tokens, 64u);
  EXPECT_EQ(PlanSample(9, 4, {.min_tokens = 64, .max_tokens = 300}).n_tokens, 257u);
}

TEST(PlanTest, LengthsArmsPartsAndThreadsVary) {
  std::map<std::string, int> arms;
  std::set<uint32_t> parts, threads, lengths;
  double sum = 0;
  int with_singles = 0;
  const uint32_t n = 2000;
  for (uint32_t i = 0; i < n; ++i) {
    const SamplePlan plan = PlanSample(1, i, {});
    ++arms[plan.arm];
    parts.insert(plan.n_parts);
    threads.insert(plan.n_threads);
    lengths.insert(plan.n_tokens);
    sum += plan.n_tokens;
    with_singles += plan.n_single > 0 ? 1 : 0;
  }
  ASSERT_EQ(arms.size(), 4u);
  for (const auto& [arm, count] : arms) EXPECT_EQ(count, 500) << arm;
  EXPECT_EQ(parts.size(), 6u);
  EXPECT_EQ(threads.size(), 2u);
  EXPECT_GT(lengths.size(), 600u);
  EXPECT_NEAR(sum / n, 488, 40);  // log-uniform over 33 .. 2048
  EXPECT_GT(with_singles, 1200);
}

TEST(PlanTest, DependsOnSeedAndIndexOnly) {
  const SamplePlan a = PlanSample(1, 20, {}), b = PlanSample(1, 20, {}), c = PlanSample(2, 20, {});
  EXPECT_EQ(a.text_seed, b.text_seed);
  EXPECT_EQ(a.rest, b.rest);
  EXPECT_NE(a.text_seed, c.text_seed);
  EXPECT_NE(a.text_seed, PlanSample(1, 21, {}).text_seed);
}

TEST(PlanTest, ShortPromptsOfAlignedModelsAreSplitOnly) {
  for (uint32_t i = 0; i < 50; ++i) {
    const SamplePlan plan = PlanSample(1, i, {.min_tokens = 2, .max_tokens = 64, .alignment = 64});
    EXPECT_EQ(plan.arm, "split");
  }
}

TEST(PlanTest, WithoutOtherProcessesTheTurnIsCounted) {
  int skipped = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    const SamplePlan plan = PlanSample(1, i, {.new_process = false});
    EXPECT_NE(plan.arm, "restore-new-process");
    skipped += plan.new_process_skipped ? 1 : 0;
    if (plan.new_process_skipped) {
      EXPECT_EQ(plan.arm, "restore-new-context");
    }
  }
  EXPECT_EQ(skipped, 10);
}

}  // namespace
}  // namespace kvgraft::eval
