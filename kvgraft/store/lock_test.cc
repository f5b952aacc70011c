#include "kvgraft/store/lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "kvgraft/store/testing.h"

namespace kvgraft::store {
namespace {

using std::chrono::milliseconds;

class LockTest : public StoreTest {};

TEST_F(LockTest, ExcludesOtherHoldersAndNamesThem) {
  Result<std::unique_ptr<StoreLock>> one = StoreLock::Open(base_ + "/lock");
  Result<std::unique_ptr<StoreLock>> two = StoreLock::Open(base_ + "/lock");
  KVG_ASSERT_OK(one);
  KVG_ASSERT_OK(two);
  {
    Result<StoreLock::Guard> held = (*one)->Acquire(milliseconds(0));
    KVG_ASSERT_OK(held);
    Result<StoreLock::Guard> refused = (*two)->Acquire(milliseconds(10));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find(std::to_string(::getpid())), std::string::npos);
    Status from_thread;
    std::thread([&] { from_thread = StatusOf((*one)->Acquire(milliseconds(10))); }).join();
    EXPECT_EQ(from_thread.code(), Code::kIo);
  }
  KVG_ASSERT_OK((*two)->Acquire(milliseconds(0)));
}

TEST_F(LockTest, ALinkInItsPlaceIsRefused) {
  std::filesystem::create_symlink(base_ + "/elsewhere", base_ + "/lock");
  EXPECT_EQ(CodeOf(StoreLock::Open(base_ + "/lock")), Code::kInvalidArgument);
  EXPECT_FALSE(FileExists(base_ + "/elsewhere"));
}

TEST_F(LockTest, AKilledHolderBlocksNobody) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Result<std::unique_ptr<StoreLock>> lock = StoreLock::Open(base_ + "/lock");
    if (!lock.ok()) ::_exit(1);
    Result<StoreLock::Guard> held = (*lock)->Acquire(milliseconds(0));
    if (!held.ok() || ::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  Result<std::unique_ptr<StoreLock>> lock = StoreLock::Open(base_ + "/lock");
  KVG_ASSERT_OK(lock);
  EXPECT_FALSE((*lock)->Acquire(milliseconds(10)).ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  KVG_ASSERT_OK((*lock)->Acquire(milliseconds(1000)));
}

TEST_F(LockTest, OnlyTheDeadLoseTheirTemporaryFiles) {
  const std::string tmp = base_ + "/tmp";
  KVG_ASSERT_OK(MakePrivateDirs(tmp));
  TempFolder alive(tmp);
  Result<std::string> folder = alive.Path();
  KVG_ASSERT_OK(folder);
  std::ofstream(*folder + "/half-written") << "x";
  const pid_t child = ::fork();
  if (child == 0) {
    TempFolder dead(tmp);
    Result<std::string> path = dead.Path();
    if (!path.ok()) ::_exit(1);
    std::ofstream(*path + "/half-written") << "y" << std::flush;
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  // Plain files: by the process id in their name, and by age without one.
  std::ofstream(tmp + "/.a.kvg." + std::to_string(child) + "-0-1f.tmp") << "dead";
  std::ofstream(tmp + "/.a.kvg." + std::to_string(::getpid()) + "-0-1f.tmp") << "alive";
  std::ofstream(tmp + "/unclaimed-new") << "?";
  std::ofstream(tmp + "/unclaimed-old") << "?";
  std::filesystem::last_write_time(
      tmp + "/unclaimed-old",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));

  EXPECT_EQ(TempFolder::RemoveStale(tmp, /*dry_run=*/true)->size(), 3u);
  EXPECT_EQ(TempFolder::RemoveStale(tmp, /*dry_run=*/false)->size(), 3u);
  EXPECT_EQ(TempFolder::RemoveStale(tmp, /*dry_run=*/false)->size(), 0u);
  EXPECT_TRUE(FileExists(*folder + "/half-written"));
  EXPECT_TRUE(FileExists(tmp + "/.a.kvg." + std::to_string(::getpid()) + "-0-1f.tmp"));
  EXPECT_TRUE(FileExists(tmp + "/unclaimed-new"));
  EXPECT_FALSE(FileExists(tmp + "/unclaimed-old"));
}

}  // namespace
}  // namespace kvgraft::store
