#include "kvgraft/core/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kvgraft {
namespace {

constexpr Code kAll[] = {
    Code::kOk,       Code::kInvalidArgument, Code::kNotFound, Code::kCorrupt,  Code::kUnsupported,
    Code::kMismatch, Code::kExhausted,       Code::kIo,       Code::kInternal, Code::kCancelled};

TEST(StatusTest, EachCodeHasItsOwnName) {
  std::set<std::string> names;
  for (Code c : kAll) names.insert(CodeName(c));
  EXPECT_EQ(names.size(), std::size(kAll));
  EXPECT_STREQ(CodeName(Code::kMismatch), "mismatch");
}

TEST(StatusTest, ExitCodesAreTheContract) {
  EXPECT_EQ(ExitCode(Code::kOk), 0);
  EXPECT_EQ(ExitCode(Code::kIo), 1);
  EXPECT_EQ(ExitCode(Code::kNotFound), 1);
  EXPECT_EQ(ExitCode(Code::kExhausted), 1);
  EXPECT_EQ(ExitCode(Code::kInvalidArgument), 2);
  EXPECT_EQ(ExitCode(Code::kCorrupt), 3);
  EXPECT_EQ(ExitCode(Code::kUnsupported), 3);
  EXPECT_EQ(ExitCode(Code::kMismatch), 3);
  EXPECT_EQ(ExitCode(Code::kCancelled), 130);
  for (Code c : kAll) EXPECT_EQ(c == Code::kOk, HttpStatus(c) < 400) << CodeName(c);
  EXPECT_EQ(HttpStatus(Code::kExhausted), 507);
}

TEST(StatusTest, AnnotateKeepsTheCode) {
  const Status s = Status(Code::kCorrupt, "bad").Annotate("file x");
  EXPECT_EQ(s.code(), Code::kCorrupt);
  EXPECT_EQ(s.message(), "file x: bad");
  EXPECT_TRUE(Status::Ok().Annotate("file x").ok());
  EXPECT_EQ(Status::Ok().Annotate("file x").message(), "");
}

Result<std::unique_ptr<int>> Make(bool ok) {
  if (!ok) return Status(Code::kNotFound, "no int");
  return std::make_unique<int>(7);
}

Result<int> Use(bool ok) {
  KVG_ASSIGN(std::unique_ptr<int> p, Make(ok));
  return *p;
}

Status Chain(bool ok) {
  KVG_RETURN(Use(ok).status());
  return Status(Code::kInternal, "reached the end");
}

TEST(StatusTest, MacrosMoveValuesAndLeaveOnErrors) {
  ASSERT_TRUE(Use(true).ok());
  EXPECT_EQ(*Use(true), 7);
  EXPECT_EQ(Use(false).status().code(), Code::kNotFound);
  EXPECT_EQ(Chain(false).code(), Code::kNotFound);
  EXPECT_EQ(Chain(true).code(), Code::kInternal);
}

TEST(StatusDeathTest, ValueOfAnErrorAbortsWithItsMessage) {
  Result<int> r = Status(Code::kIo, "the disk is gone");
  EXPECT_DEATH((void)r.value(), "the disk is gone");
  EXPECT_DEATH((void)Result<int>(Status::Ok()), "ok Status");
}

}  // namespace
}  // namespace kvgraft
