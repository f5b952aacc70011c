#include "kvgraft/session/drift.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "kvgraft/core/file.h"
#include "kvgraft/core/random.h"
#include "kvgraft/session/sampling.h"
#include "kvgraft/session/testing.h"

namespace kvgraft::session {
namespace {

using testing::CaptureFile;
using testing::Continue;
using testing::File;
using ::testing::HasSubstr;
using testing::NewToy;
using testing::Options;
using testing::Prompt;
using testing::Request;
using testing::SpyContext;
using testing::Tokens;
using testing::Toy;

constexpr size_t kFirst = 200, kSecond = 150;
constexpr double kLimit = 0.2;  // nats: between a good composition of these texts and a broken one
const Tokens kQuestion = {'H', 'o', 'w', ' ', 's', 'a', 'l', 't', 'y', '?'};

DriftRecord Gate(double threshold) {
  DriftRecord record;
  record.usable = true;
  record.threshold = threshold;
  record.link_tokens = kDefaultLinkTokens;
  return record;
}

struct Two {
  Toy toy = NewToy();
  File a = CaptureFile(toy, Request(Prompt(*toy.model, kFirst)));
  File b = CaptureFile(toy, Request(Prompt(*toy.model, kSecond, 1200)));
  artifact::Reader first = a.Open().value(), second = b.Open().value();
  Tokens all = All();

  Tokens All() const {
    Tokens tokens = first.tokens();
    const Tokens behind = TokensBehind(*toy.model, second).value();
    tokens.insert(tokens.end(), behind.begin(), behind.end());
    return tokens;
  }
  Toy Grafted() const {
    Toy target = NewToy();
    EXPECT_TRUE(Graft(*target.context, *target.model, first).ok());
    return target;
  }
  ComposeRequest Request2(const DriftRecord* gate) const {
    ComposeRequest request;
    request.artifacts = {&second};
    request.tokens = all;
    request.gate = gate;
    return request;
  }
  ImageBuffer Cold(std::vector<float>* logits) const {
    Toy cold = NewToy();
    Continue(*cold.context, all);
    ImageBuffer image = TakeImage(*cold.context).value();
    *logits = Continue(*cold.context, kQuestion);
    return image;
  }
};

// Turns what is loaded for the second text into another state: the broken attach that the gate is
// there for.
class Sabotage : public SpyContext {
 public:
  Sabotage(engine::Context& real, size_t n_held) : SpyContext(real), n_held_(n_held) {}
  Status LoadImageAt(ByteSpan image, engine::Pos first, engine::Pos end) override {
    if (static_cast<size_t>(end) <= n_held_) return SpyContext::LoadImageAt(image, first, end);
    std::vector<uint8_t> broken(image.begin(), image.end());
    KVG_ASSIGN(const MutableKvView view, ViewImage(MutableByteSpan(broken)));
    Random random(1);
    for (const auto& stream : view.streams) {
      for (size_t i = n_held_ * stream.stride; i + 4 <= stream.data.size(); i += 4) {
        const auto noise = static_cast<float>(random.Unit() * 2 - 1);
        std::memcpy(stream.data.data() + i, &noise, 4);
      }
    }
    return SpyContext::LoadImageAt(broken, first, end);
  }

 private:
  size_t n_held_;
};

TEST(Drift, CaptureRecordsTheLossOfTheLastTokens) {
  Toy toy = NewToy();
  const Tokens tokens = Prompt(*toy.model, kSecond);
  const File file = CaptureFile(toy, Request(tokens));
  const std::vector<uint64_t> loss = file.Open()->manifest().tail_loss;
  ASSERT_EQ(loss.size(), kTailLossTokens);
  ASSERT_TRUE(toy.context->Clear().ok());
  engine::Logits logits;
  ASSERT_TRUE(toy.context->Decode(tokens, engine::Schedule::kExact, tokens.size(), &logits).ok());
  for (size_t i = 0; i < loss.size(); ++i) {
    const size_t token = kSecond - loss.size() + i;
    const double want = -LogProb(logits.row(token - 1), tokens[token]);
    EXPECT_NEAR(static_cast<double>(loss[i]) * 1e-6, want, 1e-6);
  }
}

TEST(Drift, TheLossChangesNothingElse) {
  Toy toy = NewToy(), other = NewToy();
  CaptureRequest request = Request(Prompt(*toy.model, kSecond));
  const auto with = Capture(*toy.context, *toy.model, request);
  request.tail_loss = false;
  const auto without = Capture(*other.context, *other.model, request);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_TRUE(without->parts.manifest.tail_loss.empty());
  EXPECT_EQ(with->image, without->image);
  EXPECT_EQ(with->parts.manifest.id, without->parts.manifest.id);
  EXPECT_EQ(with->parts.manifest.probe, without->parts.manifest.probe);
}

// A context that holds a part of the last tokens already: the same loss, the same state.
TEST(Drift, ResumedCapturesRecordTheSame) {
  for (const uint32_t window : {0u, 64u}) {
    const engine::ToyOptions options = {.sliding_window = window, .kernel_quantum = 8};
    Toy toy = NewToy(options), resumed = NewToy(options);
    const CaptureRequest request = Request(Prompt(*toy.model, kSecond));
    const auto cold = Capture(*toy.context, *toy.model, request);
    Continue(*resumed.context, Tokens(request.tokens.begin(), request.tokens.begin() + 140));
    const auto warm = Capture(*resumed.context, *resumed.model, request);
    ASSERT_TRUE(cold.ok() && warm.ok());
    EXPECT_EQ(warm->parts.manifest.tail_loss, cold->parts.manifest.tail_loss);
    EXPECT_EQ(warm->image, cold->image);
    EXPECT_EQ(warm->tokens_computed, window > 0 ? kSecond - 128 : 10u);  // from the image's end
  }
}

// Where the padding rule does not hold, nothing is decoded twice: fewer tokens have a loss.
TEST(Drift, UnverifiedCapturesDecodeNothingTwice) {
  Toy toy = NewToy();
  CaptureRequest request = Request(Prompt(*toy.model, kSecond));
  request.verified_schedule = false;
  Continue(*toy.context, Tokens(request.tokens.begin(), request.tokens.begin() + 140));
  const auto captured = Capture(*toy.context, *toy.model, request);
  ASSERT_TRUE(captured.ok());
  EXPECT_EQ(captured->parts.manifest.tail_loss.size(), 9u);
}

TEST(Drift, ThresholdsPassGoodOnesAndCountHarmfulOnes) {
  std::vector<DriftTrial> trials;
  for (int i = 0; i < 20; ++i) trials.push_back({"good", 0.01 * i, 0.001 * i});
  for (int i = 0; i < 20; ++i) trials.push_back({"unrotated", 1.0 + i, 0.5});
  trials.push_back({"foreign-link", 0.0, 0.03});  // broken, and without harm
  DriftRecord r = ChooseThreshold(trials);
  EXPECT_TRUE(r.usable) << r.reason;
  EXPECT_DOUBLE_EQ(r.threshold, 0.18);  // 19 of 20
  EXPECT_EQ(r.good_passed, 19u);
  EXPECT_EQ(r.n_bad, 21u);
  EXPECT_EQ(r.bad_caught, 20u);
  EXPECT_EQ(r.n_harmful, 20u);
  EXPECT_NEAR(r.good_kl, 0.0095, 1e-12);

  for (int i = 0; i < 3; ++i) trials.push_back({"foreign-cells", -1, 2.0});  // 20 of 23: 87 %
  r = ChooseThreshold(trials);
  EXPECT_FALSE(r.usable);
  EXPECT_THAT(r.reason, HasSubstr("only 20 of 23"));
  EXPECT_FALSE(ChooseThreshold({}).usable);
  trials.resize(20);
  EXPECT_THAT(ChooseThreshold(trials).reason, HasSubstr("nothing to calibrate on"));
  trials.push_back({"unrotated", NAN, 9});
  EXPECT_EQ(ChooseThreshold(trials).harmful_caught, 1u);
}

TEST(Drift, JudgesTheTokensThatBothHave) {
  const std::vector<uint64_t> stored(20, 2'000'000);
  std::vector<double> composed(32, 2.25);
  GateVerdict v = Judge(Gate(0.3), stored, composed);
  EXPECT_TRUE(v.judged && v.passed);
  EXPECT_NEAR(v.delta, 0.25, 1e-12);
  EXPECT_EQ(v.held_tokens, 20u);
  v = Judge(Gate(0.2), stored, composed);
  EXPECT_FALSE(v.passed);
  EXPECT_THAT(v.reason, HasSubstr("0.250 nats"));
  composed.back() = NAN;
  EXPECT_FALSE(Judge(Gate(9), stored, composed).passed);
  v = Judge(Gate(9), {stored.data(), 15}, composed);
  EXPECT_FALSE(v.judged || v.passed);
}

TEST(Drift, AGoodCompositionPasses) {
  const Two two;
  Toy target = two.Grafted();
  const DriftRecord gate = Gate(kLimit);
  const auto composed = Compose(*target.context, *target.model, two.Request2(&gate));
  ASSERT_TRUE(composed.ok()) << composed.status().message();
  EXPECT_FALSE(composed->fell_back) << composed->reason;
  ASSERT_EQ(composed->verdicts.size(), 1u);
  EXPECT_TRUE(composed->verdicts[0].passed);
  EXPECT_EQ(composed->verdicts[0].held_tokens, kHeldTokens);
  // The head and 16 link tokens in front, 33 at the end.
  EXPECT_EQ(composed->tokens_reused, kSecond - 1 - 16 - 33);
  EXPECT_EQ(target.context->n_past(), static_cast<engine::Pos>(two.all.size()));
}

// The promise: what is broken is seen, and the answer is then the cold one, bit for bit.
TEST(Drift, ASabotagedAttachFallsBackToTheExactState) {
  const Two two;
  const DriftRecord gate = Gate(kLimit);
  std::vector<float> want;
  const ImageBuffer cold = two.Cold(&want);
  for (const bool restart : {true, false}) {
    Toy target = two.Grafted();
    Sabotage broken(*target.context, kFirst);
    ComposeRequest request = two.Request2(&gate);
    if (restart) {
      request.restart = [&](engine::Context& context) {
        return Graft(context, *target.model, two.first).status();
      };
    }
    const auto composed = Compose(broken, *target.model, request);
    ASSERT_TRUE(composed.ok()) << composed.status().message();
    EXPECT_TRUE(composed->fell_back);
    EXPECT_GT(composed->verdicts[0].delta, kLimit);
    EXPECT_THAT(composed->reason, HasSubstr("did not pass the gate"));
    EXPECT_EQ(composed->tokens_reused, 0u);
    EXPECT_EQ(TakeImage(broken).value(), cold);
    EXPECT_EQ(Continue(broken, kQuestion), want);
  }
}

TEST(Drift, WithoutAnythingToCompareItComputes) {
  Two two;
  std::vector<float> want;
  const ImageBuffer cold = two.Cold(&want);
  CaptureRequest request = Request(Prompt(*two.toy.model, kSecond, 1200));
  request.tail_loss = false;
  const File old = CaptureFile(two.toy, request);
  const artifact::Reader reader = old.Open().value();
  const DriftRecord gate = Gate(100);
  DriftRecord off = gate;
  off.usable = false;
  off.reason = "they look alike";
  const std::pair<const DriftRecord*, const char*> cases[] = {{&gate, "no recorded loss"},
                                                              {&off, "alike"}};
  for (const auto& [record, says] : cases) {
    Toy target = two.Grafted();
    ComposeRequest compose = two.Request2(record);
    if (record == &gate) compose.artifacts = {&reader};
    const auto composed = Compose(*target.context, *target.model, compose);
    ASSERT_TRUE(composed.ok());
    EXPECT_TRUE(composed->fell_back);
    EXPECT_THAT(composed->reason, HasSubstr(says));
    EXPECT_TRUE(composed->attached.empty());
    EXPECT_EQ(TakeImage(*target.context).value(), cold);
  }
}

TEST(Drift, WithoutAGateNothingIsHeld) {
  const Two two;
  Toy target = two.Grafted();
  const auto composed = Compose(*target.context, *target.model, two.Request2(nullptr));
  ASSERT_TRUE(composed.ok());
  EXPECT_FALSE(composed->fell_back);
  EXPECT_TRUE(composed->verdicts.empty());
  EXPECT_EQ(composed->tokens_reused, kSecond - 1 - 16);
}

DriftOptions SmallCalibration() {
  DriftOptions options;
  options.context = Options();
  options.n_chunks = 4;
  options.n_pairs = 3;
  options.n_further = 2;
  return options;
}

TEST(Drift, CalibratesEachNumberOfLinkTokensOnce) {
  Toy toy = NewToy();
  const std::string dir = JoinPath(::testing::TempDir(), "drift-records");
  const DriftOptions options = SmallCalibration();
  const std::vector<uint32_t> links = {16, 0};
  int runs = 0;
  const auto run = [&](std::span<const uint32_t> wanted) {
    return LoadOrCalibrateDrift(*toy.model, toy.context->identity(), options, wanted, dir,
                                [&] { ++runs; });
  };
  std::filesystem::remove_all(dir);
  const auto first = run({links.data(), 1});
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto both = run(links);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(run(links).ok());
  EXPECT_EQ(runs, 2);
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ((*both)[0].link_tokens, 16u);
  EXPECT_EQ((*both)[0].trials, (*first)[0].trials);
  EXPECT_EQ((*both)[0].n_good, 5u);
  EXPECT_EQ((*both)[0].n_bad, 12u);
  EXPECT_EQ((*both)[1].n_bad, 9u);  // no link tokens, no foreign ones
  const std::string key = DriftKey(toy.context->identity());
  EXPECT_EQ(LoadDriftRecords(dir, key).size(), 2u);
  // What cannot be read is found again.
  ASSERT_TRUE(WriteFileAtomic(DriftRecordPath(dir, key, 0), "{\"version\":1}").ok());
  EXPECT_EQ(LoadDriftRecord(dir, key, 0).status().code(), Code::kCorrupt);
  const auto again = run(links);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(runs, 3);
  EXPECT_EQ((*again)[1].trials, (*both)[1].trials);  // the same seed, the same trials
}

TEST(Drift, CalibrationCanBeInterrupted) {
  Toy toy = NewToy();
  const std::vector<uint32_t> links = {16};
  const auto status =
      CalibrateDrift(*toy.model, SmallCalibration(), links, [](size_t done, size_t) {
        return done < 6;
      }).status();
  EXPECT_EQ(status.code(), Code::kCancelled);
}

}  // namespace
}  // namespace kvgraft::session
