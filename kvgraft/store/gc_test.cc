#include "kvgraft/store/gc.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace kvgraft::store {
namespace {

Candidate Make(const char* id, uint64_t bytes, int64_t used, bool pinned = false,
               bool first = false) {
  return {{id, bytes, used}, pinned, first};
}

std::string Ids(const std::vector<ObjectFile>& objects) {
  std::string ids;
  for (const ObjectFile& object : objects) ids += object.id;
  return ids;
}

const std::vector<Candidate> kThree = {Make("a", 10, 3), Make("b", 20, 1), Make("c", 30, 2)};

TEST(PlanRoom, NothingGoesWhileThereIsRoom) {
  EXPECT_EQ(Ids(*PlanRoom(kThree, {100, 0}, 1000, 40)), "");
  EXPECT_EQ(Ids(*PlanRoom(kThree, {0, 0}, 1000, 1000)), "");
}

TEST(PlanRoom, LeastRecentlyUsedFirstAndNoMoreThanNeeded) {
  EXPECT_EQ(Ids(*PlanRoom(kThree, {60, 0}, 1000, 20)), "b");
  EXPECT_EQ(Ids(*PlanRoom(kThree, {60, 0}, 1000, 21)), "bc");
  EXPECT_EQ(Ids(*PlanRoom(kThree, {60, 0}, 1000, 60)), "bca");
}

TEST(PlanRoom, AbsentModelsGoFirst) {
  const std::vector<Candidate> candidates = {Make("a", 10, 1), Make("b", 10, 2, false, true)};
  EXPECT_EQ(Ids(*PlanRoom(candidates, {20, 0}, 1000, 5)), "b");
}

// ik_llama.cpp#2320, llama.cpp#20509: an entry larger than the limit was stored all the same.
TEST(PlanRoom, LargerThanTheBudgetIsRefusedAndEvictsNothing) {
  const Result<std::vector<ObjectFile>> plan = PlanRoom(kThree, {60, 0}, 1000, 61);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kExhausted);
  EXPECT_NE(plan.status().message().find("larger than the whole budget"), std::string::npos);
}

TEST(PlanRoom, PinnedStay) {
  const std::vector<Candidate> candidates = {Make("a", 50, 1, true), Make("b", 10, 2)};
  EXPECT_EQ(Ids(*PlanRoom(candidates, {60, 0}, 1000, 10)), "b");
  EXPECT_EQ(PlanRoom(candidates, {60, 0}, 1000, 11).status().code(), Code::kExhausted);
}

TEST(PlanRoom, KeepsTheFloorFree) {
  EXPECT_EQ(Ids(*PlanRoom(kThree, {0, 100}, 150, 50)), "");
  EXPECT_EQ(Ids(*PlanRoom(kThree, {0, 100}, 150, 51)), "b");
  EXPECT_EQ(PlanRoom(kThree, {0, 100}, 150, 111).status().code(), Code::kExhausted);
}

TEST(PlanRoom, SizesThatDoNotAddUp) {
  constexpr uint64_t kMax = UINT64_MAX;
  for (uint64_t bytes : {kMax, kMax - 1, uint64_t{1} << 63}) {
    EXPECT_EQ(PlanRoom(kThree, {0, 1 << 30}, 1 << 30, bytes).status().code(), Code::kExhausted);
    EXPECT_EQ(PlanRoom(kThree, {100, 0}, kMax, bytes).status().code(), Code::kExhausted);
  }
}

// omlx#2064: the limit was not applied to what was found at start.
TEST(PlanStart, DownToTheBudgetOrAsNearAsPinsAllow) {
  EXPECT_EQ(Ids(PlanStart(kThree, {60, 0}, 1000)), "");
  EXPECT_EQ(Ids(PlanStart(kThree, {59, 0}, 1000)), "b");
  const std::vector<Candidate> candidates = {Make("a", 50, 1, true), Make("b", 10, 2)};
  EXPECT_EQ(Ids(PlanStart(candidates, {40, 0}, 1000)), "b");
}

TEST(PlanStart, TheFloorOnlyWhenEvictingCanReachIt) {
  EXPECT_EQ(Ids(PlanStart(kThree, {0, 100}, 95)), "b");
  EXPECT_EQ(Ids(PlanStart(kThree, {0, 100}, 10)), "");
}

}  // namespace
}  // namespace kvgraft::store
