#include "kvgraft/session/doctor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "kvgraft/core/file.h"
#include "kvgraft/engine/toy_engine.h"

namespace kvgraft::session {
namespace {

using engine::Attention;
using engine::NewToyModel;
using engine::ToyOptions;

class DoctorTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           ("kvg_doctor_" + std::string(info->name()) + "_" + std::to_string(::getpid()));
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static DoctorOptions Auto() {
    DoctorOptions options;
    options.context.attention = Attention::kAuto;
    options.n_tokens = 200;
    return options;
  }
  static ExactProfile Run(const ToyOptions& toy, const DoctorOptions& options) {
    const auto model = NewToyModel(toy);
    Result<ExactProfile> profile = RunDoctor(*model, options);
    EXPECT_TRUE(profile.ok()) << profile.status().message();
    return profile.ok() ? *profile : ExactProfile();
  }

  std::filesystem::path dir_;
};

TEST_F(DoctorTest, FindsTheKernelsQuantum) {
  for (const uint32_t quantum : {2u, 4u, 8u, 16u, 32u, 64u}) {
    const ExactProfile profile = Run({.kernel_quantum = quantum}, Auto());
    EXPECT_TRUE(profile.holds) << quantum;
    EXPECT_EQ(profile.row_quantum, quantum);
    EXPECT_EQ(profile.attention, Attention::kOff);
    EXPECT_EQ(profile.n_tokens, 200u);
    ASSERT_FALSE(profile.trials.empty());
    const Trial& chosen = profile.trials.back();
    EXPECT_EQ(chosen.identical, chosen.splits);
    EXPECT_EQ(chosen.splits, 5u);  // four splits and the restore
    EXPECT_TRUE(chosen.restore_identical);
    EXPECT_EQ(chosen.max_abs_logit_diff, 0);
    for (size_t i = 0; i + 1 < profile.trials.size(); ++i) {
      EXPECT_LT(profile.trials[i].identical, profile.trials[i].splits);
      EXPECT_LT(profile.trials[i].row_quantum, quantum);
    }
  }
}

TEST_F(DoctorTest, SaysWhenNoQuantumHolds) {
  const ExactProfile profile = Run({.kernel_quantum = 0}, Auto());
  EXPECT_FALSE(profile.holds);
  EXPECT_EQ(profile.trials.size(), 12u);
  for (const Trial& trial : profile.trials) {
    EXPECT_EQ(trial.error, "");
    EXPECT_LT(trial.identical, trial.splits);
    EXPECT_GT(trial.max_abs_logit_diff, 0);
  }
}

TEST_F(DoctorTest, KernelQuantumLargerThanAllTriedDoesNotHold) {
  EXPECT_FALSE(Run({.kernel_quantum = 128}, Auto()).holds);
}

TEST_F(DoctorTest, ExhaustiveTriesAllAndChoosesTheSameOne) {
  DoctorOptions options = Auto();
  options.exhaustive = true;
  const ExactProfile profile = Run({.kernel_quantum = 16}, options);
  ASSERT_EQ(profile.trials.size(), 12u);
  EXPECT_EQ(profile.row_quantum, 16u);
  EXPECT_EQ(profile.attention, Attention::kOff);
  for (const Trial& trial : profile.trials) {
    EXPECT_EQ(trial.splits, 5u);
    EXPECT_EQ(trial.identical == trial.splits, trial.row_quantum >= 16) << trial.row_quantum;
  }
}

TEST_F(DoctorTest, GivenAttentionIsKept) {
  DoctorOptions options = Auto();
  options.context.attention = Attention::kOn;
  const ExactProfile profile = Run({.kernel_quantum = 8}, options);
  EXPECT_TRUE(profile.holds);
  EXPECT_EQ(profile.attention, Attention::kOn);
  EXPECT_EQ(profile.trials.size(), 3u);  // 2, 4 and 8 rows
}

// A quantised V cache runs with flash attention only: the other mode keeps its error, the search
// goes on.
TEST_F(DoctorTest, ConfigurationsThatDoNotRunKeepTheirError) {
  DoctorOptions options = Auto();
  options.context.type_v = "q8_0";
  const ExactProfile profile = Run({.kernel_quantum = 8}, options);
  EXPECT_TRUE(profile.holds);
  EXPECT_EQ(profile.attention, Attention::kOn);
  EXPECT_EQ(profile.row_quantum, 8u);
  ASSERT_EQ(profile.trials.size(), 6u);
  EXPECT_NE(profile.trials[0].error.find("q8_0"), std::string::npos) << profile.trials[0].error;

  options.context.attention = Attention::kOff;
  const Result<ExactProfile> none = RunDoctor(*NewToyModel(), options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
}

TEST_F(DoctorTest, QuantaMustDivideTheBatch) {
  DoctorOptions options = Auto();
  options.context.n_ubatch = 24;
  options.context.row_quantum = 8;
  const ExactProfile profile = Run({.kernel_quantum = 8}, options);
  EXPECT_TRUE(profile.holds);
  options.context.n_ubatch = 5;
  const Result<ExactProfile> none = RunDoctor(*NewToyModel(), options);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("n_ubatch 5"), std::string::npos);
}

TEST_F(DoctorTest, SlidingWindowRestoresAtAlignedLengths) {
  EXPECT_TRUE(Run({.sliding_window = 96, .kernel_quantum = 8}, Auto()).holds);
  // Without the full-size window cache a saved state goes on with other bits: the restore tells.
  DoctorOptions options = Auto();
  options.context.swa_full = false;
  const ExactProfile profile = Run({.sliding_window = 96, .kernel_quantum = 8}, options);
  EXPECT_FALSE(profile.holds);
  bool only_restore_failed = false;
  for (const Trial& t : profile.trials) {
    only_restore_failed |= t.restore_tried && !t.restore_identical && t.identical + 1 == t.splits;
  }
  EXPECT_TRUE(only_restore_failed);
}

TEST_F(DoctorTest, StopsWhenAsked) {
  const auto model = NewToyModel({.kernel_quantum = 8});
  size_t calls = 0;
  const Result<ExactProfile> profile = RunDoctor(*model, Auto(), [&](size_t done, size_t total) {
    EXPECT_LE(done, total);
    return ++calls < 3;
  });
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.status().code(), Code::kCancelled);
  EXPECT_EQ(calls, 3u);
}

TEST_F(DoctorTest, ProfileRoundTripsAndRefusesBrokenJson) {
  ExactProfile profile = Run({.kernel_quantum = 16}, Auto());
  profile.key = "k";
  const std::string json = ProfileToJson(profile);
  const Result<ExactProfile> back = ProfileFromJson(json);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(ProfileToJson(*back), json);
  EXPECT_EQ(back->row_quantum, 16u);

  for (size_t n = 0; n + 2 < json.size(); n += 7) {
    EXPECT_EQ(ProfileFromJson(json.substr(0, n)).status().code(), Code::kCorrupt) << n;
  }
  std::string zero = json;
  zero.replace(zero.find("\"row_quantum\": 16,\n  \"trials"), 17, "\"row_quantum\": 0 ");
  EXPECT_EQ(ProfileFromJson(zero).status().code(), Code::kCorrupt) << zero;
  std::string newer = json;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 9");
  EXPECT_EQ(ProfileFromJson(newer).status().code(), Code::kUnsupported);
}

TEST_F(DoctorTest, KeptProfileIsUsedUntilSomethingChanges) {
  const std::string dir = dir_.string();
  int runs = 0;
  const auto on_run = [&runs] { ++runs; };
  const auto load = [&](const ToyOptions& toy, const DoctorOptions& options) {
    const auto model = NewToyModel(toy);
    Result<ExactProfile> profile = LoadOrRunDoctor(*model, options, dir, on_run);
    EXPECT_TRUE(profile.ok()) << profile.status().message();
    EXPECT_EQ(profile->keep_error, "");
    return *profile;
  };
  const ExactProfile first = load({.kernel_quantum = 8}, Auto());
  EXPECT_EQ(runs, 1);
  const ExactProfile again = load({.kernel_quantum = 8}, Auto());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(ProfileToJson(first), ProfileToJson(again));

  // Another context size, thread count or quantum asks the same question.
  DoctorOptions same = Auto();
  same.context.n_ctx = 9000;
  same.context.n_threads = 1;
  same.context.row_quantum = 64;
  load({.kernel_quantum = 8}, same);
  EXPECT_EQ(runs, 1);

  load({.weight_seed = 2, .kernel_quantum = 8}, Auto());  // another model
  EXPECT_EQ(runs, 2);
  load({.kernel_quantum = 8, .build = "toy-2"}, Auto());  // another build
  EXPECT_EQ(runs, 3);
  DoctorOptions ubatch = Auto();
  ubatch.context.n_ubatch = 256;
  load({.kernel_quantum = 8}, ubatch);
  EXPECT_EQ(runs, 4);
  DoctorOptions cache = Auto();
  cache.context.type_k = "q8_0";
  load({.kernel_quantum = 8}, cache);
  EXPECT_EQ(runs, 5);
  DoctorOptions flash = Auto();
  flash.context.attention = Attention::kOn;
  load({.kernel_quantum = 8}, flash);
  EXPECT_EQ(runs, 6);
}

TEST_F(DoctorTest, DamagedProfileIsRunAgain) {
  const std::string dir = dir_.string();
  const auto model = NewToyModel({.kernel_quantum = 8});
  const Result<ExactProfile> first = LoadOrRunDoctor(*model, Auto(), dir);
  ASSERT_TRUE(first.ok());
  const std::string path = JoinPath(dir, first->key + ".json");
  std::string text = *ReadFile(path, 1 << 20);
  text.replace(text.find(first->key), 4, "zzzz");  // a copy of another machine's profile
  for (const std::string& broken : {text, std::string(), std::string("{}")}) {
    ASSERT_TRUE(WriteFileAtomic(path, broken).ok());
    int runs = 0;
    const Result<ExactProfile> again = LoadOrRunDoctor(*model, Auto(), dir, [&] { ++runs; });
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(ProfileFromJson(*ReadFile(path, 1 << 20))->key, first->key);
  }
}

TEST_F(DoctorTest, ProfileThatCannotBeKeptIsStillUsed) {
  std::filesystem::create_directories(dir_);
  const std::string file = (dir_ / "file").string();
  ASSERT_TRUE(WriteFileAtomic(file, "in the way").ok());
  const auto model = NewToyModel({.kernel_quantum = 8});
  const Result<ExactProfile> profile = LoadOrRunDoctor(*model, Auto(), file);
  ASSERT_TRUE(profile.ok());
  EXPECT_TRUE(profile->holds);
  EXPECT_NE(profile->keep_error, "");
}

}  // namespace
}  // namespace kvgraft::session
