#include "kvgraft/eval/prove.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "kvgraft/engine/toy_engine.h"
#include "kvgraft/eval/restore_request.h"

namespace kvgraft::eval {
namespace {

using engine::NewToyModel;
using engine::ToyOptions;

class ProveTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           ("kvg_prove_" + std::string(info->name()) + "_" + std::to_string(::getpid()));
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static ProveOptions Small(uint32_t row_quantum, uint32_t samples = 24) {
    ProveOptions options;
    options.samples = samples;
    options.max_tokens = 300;
    options.generate_tokens = 12;
    options.context.row_quantum = row_quantum;
    options.context.n_ubatch = 128;
    return options;
  }
  static ProveReport Run(const ToyOptions& toy, const ProveOptions& options) {
    const auto model = NewToyModel(toy);
    Result<ProveReport> report = Prove(*model, options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : ProveReport();
  }
  // Another process, as far as the model goes: another object of the same weights.
  static std::function<Result<std::string>(const std::string&)> Elsewhere(const ToyOptions& toy) {
    return [toy](const std::string& request) -> Result<std::string> {
      const auto model = NewToyModel(toy);
      return RunRestoreRequest(*model, request);
    };
  }

  std::filesystem::path dir_;
};

TEST_F(ProveTest, HoldsWithThePaddingRule) {
  const ToyOptions toy = {.kernel_quantum = 8};
  ProveOptions options = Small(8);
  options.other_process = Elsewhere(toy);
  options.temp_dir = dir_.string();
  const ProveReport report = Run(toy, options);
  ASSERT_EQ(report.samples.size(), 24u);
  EXPECT_EQ(report.n_identical(), 24u);
  EXPECT_EQ(report.kl_max(), 0);
  EXPECT_EQ(report.max_abs_logit_diff(), 0);
  EXPECT_EQ(report.new_process_skipped, 0u);
  // The engine's ordinary batching differs, and says so.
  EXPECT_GT(report.ordinary_max_abs_logit_diff(), 0);
  std::set<std::string> arms;
  for (const ProveSample& s : report.samples) {
    arms.insert(s.arm);
    EXPECT_EQ(s.tier, s.arm == "split" ? "" : "exact") << s.arm;
    EXPECT_EQ(s.n_restored > 0, s.arm != "split");
    EXPECT_FALSE(s.ordinary_state_identical);
    EXPECT_GE(s.ordinary_kl, 0);
  }
  EXPECT_EQ(arms.size(), 4u);
  EXPECT_TRUE(std::filesystem::is_empty(dir_));  // nothing is left behind
}

// The proof must be able to fail: the same kernels without padding.
TEST_F(ProveTest, FailsWithoutPadding) {
  const ProveReport report = Run({.kernel_quantum = 8}, Small(1));
  ASSERT_EQ(report.samples.size(), 24u);
  EXPECT_LT(report.n_identical(), 6u);
  EXPECT_GT(report.max_abs_logit_diff(), 0);
  EXPECT_GT(report.kl_max(), 0);
}

TEST_F(ProveTest, FailsWithAQuantumThatIsTooSmallAndWithKernelsThatNeverAre) {
  EXPECT_LT(Run({.kernel_quantum = 16}, Small(8)).n_identical(), 24u);
  EXPECT_EQ(Run({.kernel_quantum = 16}, Small(16)).n_identical(), 24u);
  EXPECT_LT(Run({.kernel_quantum = 0}, Small(8)).n_identical(), 24u);
}

TEST_F(ProveTest, SlidingWindowModelsRestoreAtAlignedLengths) {
  const ToyOptions toy = {.sliding_window = 96, .kernel_quantum = 8};
  ProveOptions options = Small(8);
  options.other_process = Elsewhere(toy);
  options.temp_dir = dir_.string();
  const ProveReport report = Run(toy, options);
  EXPECT_EQ(report.n_identical(), 24u);
  size_t restored = 0;
  for (const ProveSample& s : report.samples) {
    EXPECT_EQ(s.n_restored % 64, 0u);
    restored += s.n_restored > 0 ? 1 : 0;
  }
  EXPECT_GT(restored, 10u);

  // Without the full-size window cache no restore goes on identically; splits do.
  options.context.swa_full = false;
  for (const ProveSample& s : Run(toy, options).samples) {
    EXPECT_EQ(s.identical(), s.n_restored == 0) << s.arm;
  }
}

// A process with other weights refuses the artifact: an error, never a number.
TEST_F(ProveTest, OtherProcessWithAnotherModelIsAnError) {
  ProveOptions options = Small(8, 4);
  options.other_process = Elsewhere({.weight_seed = 2, .kernel_quantum = 8});
  options.temp_dir = dir_.string();
  const auto model = NewToyModel({.kernel_quantum = 8});
  const Result<ProveReport> report = Prove(*model, options);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kMismatch);
  EXPECT_NE(report.status().message().find("model.sha256"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

// Kernels of the other process that give other bits: the sample tells which parts differ.
TEST_F(ProveTest, OtherProcessWithOtherKernelsIsFound) {
  ProveOptions options = Small(8, 16);
  options.other_process = Elsewhere({.kernel_quantum = 16});
  options.temp_dir = dir_.string();
  for (const ProveSample& s : Run({.kernel_quantum = 8}, options).samples) {
    if (s.arm == "restore-new-process") {
      EXPECT_FALSE(s.identical());
      EXPECT_EQ(s.tier, "exact-build-differs");  // the probe saw it
      EXPECT_GT(s.max_abs_logit_diff, 0);
    } else {
      EXPECT_TRUE(s.identical());
    }
  }
}

TEST_F(ProveTest, SkippedNewProcessesAreCounted) {
  const ProveReport report = Run({.kernel_quantum = 8}, Small(8, 8));
  EXPECT_EQ(report.new_process_skipped, 2u);
  EXPECT_EQ(report.n_identical(), 8u);
}

TEST_F(ProveTest, CanBeContinuedAndStopped) {
  const auto model = NewToyModel({.kernel_quantum = 8});
  ProveOptions options = Small(1, 6);
  const Result<ProveReport> whole = Prove(*model, options);
  size_t calls = 0;
  const Result<ProveReport> begun =
      Prove(*model, options, [&](const ProveSample& s, size_t done, size_t total) {
        EXPECT_EQ(s.index + 1, done);
        EXPECT_EQ(total, 6u);
        return ++calls < 2;
      });
  options.first_sample = 2;
  const Result<ProveReport> rest = Prove(*model, options);
  ASSERT_TRUE(whole.ok() && begun.ok() && rest.ok());
  ASSERT_EQ(begun->samples.size(), 2u);
  ASSERT_EQ(rest->samples.size(), 4u);
  for (size_t i = 0; i < 6; ++i) {
    const ProveSample& s = i < 2 ? begun->samples[i] : rest->samples[i - 2];
    EXPECT_EQ(SampleToJson(s), SampleToJson(whole->samples[i]));
  }
}

TEST_F(ProveTest, RefusesOptionsThatCannotBe) {
  const auto model = NewToyModel({.kernel_quantum = 8});
  ProveOptions options = Small(8);
  options.min_tokens = 400;
  EXPECT_EQ(Prove(*model, options).status().code(), Code::kInvalidArgument);
  options = Small(8);
  options.generate_tokens = 1000;
  EXPECT_EQ(Prove(*model, options).status().code(), Code::kInvalidArgument);
  options = Small(8);
  options.other_process = Elsewhere({});
  EXPECT_EQ(Prove(*model, options).status().code(), Code::kInvalidArgument);
  options = Small(8);
  options.min_tokens = 5000;
  options.max_tokens = 6000;  // beyond the model's window
  EXPECT_EQ(Prove(*model, options).status().code(), Code::kInvalidArgument);
}

TEST_F(ProveTest, GenerationMayBeLeftOut) {
  for (const uint32_t n : {0u, 1u, 2u}) {
    ProveOptions options = Small(8, 4);
    options.generate_tokens = n;
    EXPECT_EQ(Run({.kernel_quantum = 8}, options).n_identical(), 4u) << n;
  }
}

TEST(ProveReportTest, SamplesRoundTripAsJson) {
  ProveSample s;
  s.index = 7;
  s.arm = "restore";
  s.n_tokens = 512;
  s.state_identical = true;
  s.tier = "exact";
  s.kl = 0.25;
  s.max_abs_logit_diff = std::numeric_limits<double>::infinity();
  const std::string json = SampleToJson(s);
  EXPECT_NE(json.find("\"identical\":false"), std::string::npos);
  const Result<ProveSample> back = SampleFromJson(json);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(SampleToJson(*back), json);
  EXPECT_TRUE(std::isinf(back->max_abs_logit_diff));
  for (size_t n = 0; n < json.size(); ++n) {
    EXPECT_EQ(SampleFromJson(json.substr(0, n)).status().code(), Code::kCorrupt) << n;
  }
}

TEST(ProveReportTest, KlDivergence) {
  const std::vector<float> p = {0, 0}, q = {0, std::log(3.0f)};
  EXPECT_EQ(KlDivergence(p, p), 0);
  // 0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75)
  EXPECT_NEAR(KlDivergence(p, q), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0), 1e-7);
  const std::vector<float> shifted = {1000, 1000 + std::log(3.0f)};
  EXPECT_NEAR(KlDivergence(q, shifted), 0, 1e-4);
  const std::vector<float> nan = {0, std::nanf("")};
  EXPECT_TRUE(std::isinf(KlDivergence(p, nan)));
  EXPECT_TRUE(std::isinf(MaxAbsDifference(p, nan)));
  EXPECT_TRUE(std::isinf(MaxAbsDifference(p, std::vector<float>{0})));
  EXPECT_EQ(MaxAbsDifference(q, q), 0);
  EXPECT_NEAR(MaxAbsDifference(p, q), std::log(3.0), 1e-6);
}

TEST(RestoreRequestTest, RoundTripsAndRefusesBrokenJson) {
  RestoreRequest request;
  request.artifact_path = "/tmp/a \"b\".kvg";
  request.logits_path = "/tmp/l";
  request.rest = {1, 2, 300000};
  request.steps = {{5, 2, false}, {7, 1, true}};
  request.n_threads = 2;
  request.disturb_seed = 0xFFFFFFFFFFFFFFFFull;
  request.generate_tokens = 32;
  request.context.attention = engine::Attention::kOn;
  request.context.rope_freq_base = 1.1f;
  const std::string json = MakeRestoreRequest(request);
  const Result<RestoreRequest> back = ParseRestoreRequest(json);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(MakeRestoreRequest(*back), json);
  EXPECT_EQ(back->disturb_seed, request.disturb_seed);
  EXPECT_EQ(back->context.rope_freq_base, 1.1f);
  EXPECT_EQ(back->steps, request.steps);
  for (size_t n = 0; n < json.size(); n += 5) {
    EXPECT_EQ(ParseRestoreRequest(json.substr(0, n)).status().code(), Code::kInvalidArgument);
  }
  const auto model = NewToyModel();
  EXPECT_FALSE(RunRestoreRequest(*model, json).ok());  // no such file
}

}  // namespace
}  // namespace kvgraft::eval
