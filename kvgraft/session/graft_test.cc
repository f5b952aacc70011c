#include <functional>

#include "kvgraft/session/capture.h"
#include "kvgraft/session/testing.h"

namespace kvgraft::session {
namespace {

using testing::CaptureFile;
using testing::Continue;
using testing::Encode;
using testing::File;
using testing::NewToy;
using testing::Options;
using testing::Prompt;
using testing::Request;
using testing::SpyContext;
using testing::Tokens;
using testing::Toy;

constexpr GraftOptions kVerified = {.verified_schedule = true};

Result<Grafted> GraftFile(engine::Context& context, const Toy& toy, const File& file,
                          const GraftOptions& options = kVerified) {
  const Result<artifact::Reader> reader = file.Open();
  if (!reader.ok()) return reader.status();
  return Graft(context, *toy.model, *reader, options);
}

Grafted MustGraft(engine::Context& context, const Toy& toy, const File& file,
                  const GraftOptions& options = kVerified) {
  Result<Grafted> grafted = GraftFile(context, toy, file, options);
  EXPECT_TRUE(grafted.ok()) << grafted.status().message();
  return grafted.ok() ? *grafted : Grafted();
}

const Tokens kQuestion = {'H', 'o', 'w', ' ', 's', 'a', 'l', 't', 'y', '?'};

// The logits of a question after `document`, computed in a context of its own.
std::vector<float> ColdAnswer(const Tokens& document, const engine::ToyOptions& options) {
  Toy toy = NewToy(options);
  Continue(*toy.context, document);
  return Continue(*toy.context, kQuestion);
}

// mlx-examples#977 and llama.cpp#1263: the shortest states, and those at the context's border.
TEST(GraftTest, ContinuesWithTheBitsOfAColdRun) {
  const engine::ToyOptions options = {.kernel_quantum = 8};
  Toy source = NewToy(options);
  for (const size_t n : {1u, 2u, 3u, 63u, 64u, 65u, 256u, 500u}) {
    const Tokens document = Prompt(*source.model, n);
    const File file = CaptureFile(source, Request(document));
    Toy target = NewToy(options, Options(static_cast<uint32_t>(n) + 10));
    const Grafted grafted = MustGraft(*target.context, target, file);
    EXPECT_EQ(grafted.tier, "exact");
    EXPECT_EQ(grafted.tier_reason, "");
    EXPECT_EQ(grafted.tokens_reused, n);
    EXPECT_EQ(grafted.tokens_computed, 0u);
    EXPECT_TRUE(grafted.probed);
    EXPECT_TRUE(grafted.probe_identical);
    EXPECT_EQ(target.context->n_past(), static_cast<int>(n));
    EXPECT_EQ(Continue(*target.context, kQuestion), ColdAnswer(document, options)) << n;
  }
}

TEST(GraftTest, ReplacesAnotherConversation) {
  const engine::ToyOptions options = {.kernel_quantum = 8};
  Toy source = NewToy(options), target = NewToy(options);
  const Tokens document = Prompt(*source.model, 150);
  const File file = CaptureFile(source, Request(document));
  Continue(*target.context, Prompt(*source.model, 400, 500));
  ASSERT_TRUE(target.context->RunUnrelatedTraffic(7, 100).ok());
  MustGraft(*target.context, target, file);
  EXPECT_EQ(target.context->n_past(), 150);
  EXPECT_EQ(Continue(*target.context, kQuestion), ColdAnswer(document, options));
}

TEST(GraftTest, SlidingWindowTailIsComputedAgain) {
  const engine::ToyOptions options = {.sliding_window = 96, .kernel_quantum = 8};
  Toy source = NewToy(options);
  for (const size_t n : {40u, 64u, 100u, 200u, 320u}) {
    const Tokens document = Prompt(*source.model, n);
    const File file = CaptureFile(source, Request(document));
    Toy target = NewToy(options);
    const Grafted grafted = MustGraft(*target.context, target, file);
    EXPECT_EQ(grafted.tier, "exact");
    EXPECT_EQ(grafted.tokens_reused, n / 64 * 64);
    EXPECT_EQ(grafted.tokens_computed, n % 64);
    EXPECT_EQ(target.context->n_past(), static_cast<int>(n));
    EXPECT_EQ(Continue(*target.context, kQuestion), ColdAnswer(document, options)) << n;
  }
}

// An image that ends elsewhere goes on with other bits on these models, so it is refused.
TEST(GraftTest, MisalignedImageOfASlidingWindowModelIsRefused) {
  Toy toy = NewToy({.sliding_window = 96, .kernel_quantum = 8});
  const Tokens document = Prompt(*toy.model, 100);
  Result<Captured> captured = Capture(*toy.context, *toy.model, Request(document));
  ASSERT_TRUE(captured.ok());
  captured->image = *TakeImage(*toy.context);
  captured->parts.manifest.n_image_tokens = 100;
  captured->parts.manifest.id.clear();
  const Result<Grafted> grafted = GraftFile(*toy.context, toy, Encode(std::move(*captured)));
  EXPECT_EQ(grafted.status().code(), Code::kUnsupported);
  EXPECT_NE(grafted.status().message().find("multiple of 64"), std::string::npos);
  EXPECT_EQ(toy.context->n_past(), 100);
}

// sglang#24758, vllm#49261: equal name, tokenizer and geometry, other weights.
// vllm#55904: the layout of V differs. The message names the field and both values.
TEST(GraftTest, OtherModelOrConfigurationIsRefusedNamingTheField) {
  Toy source = NewToy();
  const File file = CaptureFile(source, Request(Prompt(*source.model, 100)));
  const auto refused = [&](const engine::ToyOptions& options,
                           const engine::ContextOptions& context_options, const char* field) {
    Toy target = NewToy(options, context_options);
    Continue(*target.context, {1, 2, 3});
    SpyContext spy(*target.context);
    const Result<Grafted> grafted = GraftFile(spy, target, file);
    ASSERT_FALSE(grafted.ok()) << field;
    EXPECT_EQ(grafted.status().code(), Code::kMismatch);
    EXPECT_NE(grafted.status().message().find(field), std::string::npos)
        << grafted.status().message();
    EXPECT_NE(grafted.status().message().find(source.context->identity().Get(field)),
              std::string::npos);
    EXPECT_NE(grafted.status().message().find(target.context->identity().Get(field)),
              std::string::npos);
    EXPECT_EQ(spy.loads + spy.decodes + spy.clears, 0);
    EXPECT_EQ(spy.n_past(), 3);
  };
  refused({.weight_seed = 2, .kernel_quantum = 8}, Options(), "model.sha256");
  refused({.kernel_quantum = 8, .tokenizer = "other"}, Options(), "tokenizer.sha256");
  refused({.sliding_window = 96, .kernel_quantum = 8}, Options(), "swa.window");
  engine::ContextOptions flash = Options();
  flash.attention = engine::Attention::kOn;
  refused({.kernel_quantum = 8}, flash, "cache.v_layout");
  engine::ContextOptions types = Options();
  types.type_k = "q8_0";
  refused({.kernel_quantum = 8}, types, "cache.type_k");
  engine::ContextOptions rope = Options();
  rope.rope_freq_base = 50000;
  refused({.kernel_quantum = 8}, rope, "rope.freq_base");
}

// ik_llama.cpp#2212: what really is compatible must load.
TEST(GraftTest, OtherBatchThreadsAndContextSizeLoad) {
  Toy source = NewToy();
  const Tokens document = Prompt(*source.model, 100);
  const File file = CaptureFile(source, Request(document));
  engine::ContextOptions options = Options(2000, 16);
  options.n_ubatch = 64;
  options.n_threads = 1;
  Toy target = NewToy({.kernel_quantum = 8}, options);
  const Grafted grafted = MustGraft(*target.context, target, file);
  EXPECT_EQ(grafted.tier, "exact") << grafted.tier_reason;
  EXPECT_EQ(Continue(*target.context, kQuestion), ColdAnswer(document, {.kernel_quantum = 8}));
}

TEST(GraftTest, ContextTooSmallSaysHowMuchIsNeeded) {
  Toy source = NewToy();
  const File file = CaptureFile(source, Request(Prompt(*source.model, 100)));
  Toy target = NewToy({.kernel_quantum = 8}, Options(99));
  Continue(*target.context, {1, 2, 3});
  SpyContext spy(*target.context);
  const Result<Grafted> grafted = GraftFile(spy, target, file);
  EXPECT_EQ(grafted.status().code(), Code::kExhausted);
  EXPECT_NE(grafted.status().message().find("100 tokens, the context takes 99; use -c 108"),
            std::string::npos)
      << grafted.status().message();
  EXPECT_EQ(spy.loads, 0);
  EXPECT_EQ(spy.n_past(), 3);

  // Room for the tokens but not for the probe: it goes without.
  Toy tight = NewToy({.kernel_quantum = 8}, Options(100));
  const Grafted without = MustGraft(*tight.context, tight, file);
  EXPECT_EQ(without.tier, "exact");
  EXPECT_FALSE(without.probed);
}

// Nothing of a damaged image reaches the engine (llama.cpp#27068, #27530).
TEST(GraftTest, TamperedImageIsRefusedBeforeTheEngineSeesIt) {
  Toy toy = NewToy();
  const Tokens document = Prompt(*toy.model, 60);
  const File file = CaptureFile(toy, Request(document));
  const Result<artifact::Reader> sound = file.Open();
  ASSERT_TRUE(sound.ok());
  const size_t begin = static_cast<size_t>(sound->image().data() - file.bytes.data());
  const size_t size = sound->image().size();
  Continue(*toy.context, {1, 2, 3});
  SpyContext spy(*toy.context);
  const auto past = spy.n_past();
  for (size_t i = 0; i < 400; ++i) {
    File bad = file;
    bad.bytes[begin + i * 7919 % size] ^= static_cast<uint8_t>(1 << (i % 8));
    const Result<Grafted> grafted = GraftFile(spy, toy, bad);
    ASSERT_EQ(grafted.status().code(), Code::kCorrupt) << i;
  }
  EXPECT_EQ(spy.loads + spy.checks + spy.decodes + spy.clears, 0);
  EXPECT_EQ(spy.n_past(), past);
}

// Sound checksums over bytes that are no state: CheckImage refuses, the context keeps its own.
TEST(GraftTest, ImageThatIsNoStateIsRefusedByCheckImage) {
  Toy toy = NewToy();
  Result<Captured> captured = Capture(*toy.context, *toy.model, Request(Prompt(*toy.model, 60)));
  ASSERT_TRUE(captured.ok());
  captured->image.resize(captured->image.size() - 1);
  captured->parts.manifest.id.clear();
  const File file = Encode(std::move(*captured));
  SpyContext spy(*toy.context);
  EXPECT_FALSE(GraftFile(spy, toy, file).ok());
  EXPECT_EQ(spy.checks, 1);
  EXPECT_EQ(spy.loads, 0);
  EXPECT_EQ(spy.n_past(), 60);
}

// llama.cpp#25452, llama.cpp#27068: after a load that fails late the context answers another
// prompt as a new one would.
TEST(GraftTest, FailingEngineLeavesAnEmptyUsableContext) {
  Toy source = NewToy();
  const File file = CaptureFile(source, Request(Prompt(*source.model, 100)));
  Toy target = NewToy({.kernel_quantum = 8, .fail_load_image = true});
  Continue(*target.context, {1, 2, 3});
  const Result<Grafted> grafted = GraftFile(*target.context, target, file);
  EXPECT_EQ(grafted.status().code(), Code::kInternal);
  EXPECT_EQ(target.context->n_past(), 0);
  const Tokens other = Prompt(*source.model, 80, 700);
  Continue(*target.context, other);
  EXPECT_EQ(Continue(*target.context, kQuestion), ColdAnswer(other, {.kernel_quantum = 8}));

  Toy again = NewToy();
  SpyContext spy(*again.context);
  spy.fail_load_late = true;  // the state is in place, the call failed
  EXPECT_FALSE(GraftFile(spy, again, file).ok());
  EXPECT_EQ(spy.n_past(), 0);
}

TEST(GraftTest, FailureInTailOrProbeLeavesAnEmptyContext) {
  const engine::ToyOptions options = {.sliding_window = 96, .kernel_quantum = 8};
  Toy toy = NewToy(options);
  const File file = CaptureFile(toy, Request(Prompt(*toy.model, 100)));
  for (const int nth : {1, 2, 3}) {  // the tail, the probe's padded and its single call
    Toy target = NewToy(options);
    SpyContext spy(*target.context);
    spy.fail_decode = nth;
    EXPECT_EQ(GraftFile(spy, target, file).status().code(), Code::kInternal) << nth;
    EXPECT_EQ(spy.n_past(), 0);
  }
  const Result<artifact::Reader> reader = file.Open();
  Toy target = NewToy(options, Options(1024, 8));
  SpyContext spy(*target.context);
  spy.fail_truncate = true;
  EXPECT_FALSE(Graft(spy, *target.model, *reader, kVerified).ok());
  EXPECT_EQ(spy.n_past(), 0);
}

TEST(GraftTest, TokensOutsideTheVocabularyAreRefused) {
  Toy toy = NewToy();
  Result<Captured> captured = Capture(*toy.context, *toy.model, Request(Prompt(*toy.model, 20)));
  ASSERT_TRUE(captured.ok());
  captured->parts.tokens[7] = 1000000;
  captured->parts.manifest.id.clear();
  const Result<Grafted> grafted = GraftFile(*toy.context, toy, Encode(std::move(*captured)));
  EXPECT_EQ(grafted.status().code(), Code::kCorrupt);
  EXPECT_NE(grafted.status().message().find("token 1000000 at index 7"), std::string::npos);
}

class TierTest : public ::testing::Test {
 protected:
  // An artifact captured by `build`, changed by `change`, grafted here.
  Grafted Run(const std::string& build, const GraftOptions& options = kVerified,
              const std::function<void(artifact::Manifest&)>& change = {}) {
    Toy source = NewToy({.kernel_quantum = 8, .build = build});
    Result<Captured> captured =
        Capture(*source.context, *source.model, Request(Prompt(*source.model, 90)));
    EXPECT_TRUE(captured.ok());
    if (change) change(captured->parts.manifest);
    return MustGraft(*here_.context, here_, Encode(std::move(*captured)), options);
  }
  static void BreakPadded(artifact::Manifest& m) { m.probe.padded_sha256 = std::string(64, '0'); }
  static void BreakSingle(artifact::Manifest& m) { m.probe.single_sha256 = std::string(64, '0'); }

  Toy here_ = NewToy();
};

TEST_F(TierTest, EqualBuildIsExactWithOrWithoutProbe) {
  EXPECT_EQ(Run("toy-1").tier, "exact");
  const Grafted never = Run("toy-1", {.probe = ProbePolicy::kNever, .verified_schedule = true});
  EXPECT_EQ(never.tier, "exact");
  EXPECT_FALSE(never.probed);
  EXPECT_TRUE(never.build_diffs.empty());
}

TEST_F(TierTest, OtherBuildIsExactOnlyWhenTheProbeProvesIt) {
  const Grafted proven = Run("toy-2");
  EXPECT_EQ(proven.tier, "exact");
  EXPECT_NE(proven.tier_reason.find("engine.build"), std::string::npos);
  EXPECT_NE(proven.tier_reason.find("reproduced"), std::string::npos);
  ASSERT_EQ(proven.build_diffs.size(), 1u);
  EXPECT_EQ(proven.build_diffs[0].artifact, "toy-2");
  EXPECT_EQ(proven.build_diffs[0].here, "toy-1");

  const Grafted never = Run("toy-2", {.probe = ProbePolicy::kNever, .verified_schedule = true});
  EXPECT_EQ(never.tier, "exact-build-differs");
  EXPECT_NE(never.tier_reason.find("engine.build"), std::string::npos);
  const Grafted without =
      Run("toy-2", kVerified, [](artifact::Manifest& m) { m.probe = artifact::Probe(); });
  EXPECT_EQ(without.tier, "exact-build-differs");
  EXPECT_NE(without.tier_reason.find("no probe"), std::string::npos);
}

TEST_F(TierTest, ProbeThatDiffersIsNotExact) {
  const Grafted padded = Run("toy-1", kVerified, BreakPadded);
  EXPECT_EQ(padded.tier, "exact-build-differs");
  EXPECT_NE(padded.tier_reason.find("padded logits differ"), std::string::npos);
  EXPECT_TRUE(padded.probed);
  EXPECT_FALSE(padded.probe_identical);
  EXPECT_EQ(here_.context->n_past(), 90);
  EXPECT_EQ(Run("toy-1", kVerified, BreakSingle).tier, "exact-build-differs");
}

TEST_F(TierTest, SingleRowHashCountsForTheSameThreadsOnly) {
  const Grafted other = Run("toy-1", kVerified, [](artifact::Manifest& m) {
    BreakSingle(m);
    m.probe.single_threads = 7;
  });
  EXPECT_EQ(other.tier, "exact");
  EXPECT_TRUE(other.probe_identical);
}

TEST_F(TierTest, WithoutAHoldingSelfTestTheTierIsRestored) {
  const Grafted here = Run("toy-1", {.verified_schedule = false});
  EXPECT_EQ(here.tier, "restored");
  EXPECT_NE(here.tier_reason.find("self-test does not hold here"), std::string::npos);
  const Grafted there =
      Run("toy-1", kVerified, [](artifact::Manifest& m) { m.schedule.verified = false; });
  EXPECT_EQ(there.tier, "restored");
  EXPECT_NE(there.tier_reason.find("where the state was captured"), std::string::npos);
  EXPECT_EQ(Run("toy-1", kVerified, [](artifact::Manifest& m) { m.schedule.kind = "fast"; }).tier,
            "restored");
}

TEST_F(TierTest, OtherTiersPassThrough) {
  for (const char* tier : {"moved", "composed", "mapped", "compacted", "coded"}) {
    const Grafted grafted = Run("toy-2", kVerified, [&](artifact::Manifest& m) { m.tier = tier; });
    EXPECT_EQ(grafted.tier, tier);
  }
}

TEST_F(TierTest, LedgerRemembersAVerdictForTheSameModelAndBuild) {
  ProbeLedger ledger;
  const GraftOptions options = {.ledger = &ledger, .verified_schedule = true};
  const Grafted first = Run("toy-2", options);
  EXPECT_TRUE(first.probed);
  const Grafted second = Run("toy-2", options, BreakPadded);  // not looked at again
  EXPECT_FALSE(second.probed);
  EXPECT_TRUE(second.probe_identical);
  EXPECT_EQ(second.tier, "exact");

  const Grafted always =
      Run("toy-2", {.probe = ProbePolicy::kAlways, .ledger = &ledger, .verified_schedule = true},
          BreakPadded);
  EXPECT_TRUE(always.probed);
  EXPECT_EQ(always.tier, "exact-build-differs");
  // A later verdict replaces the earlier one.
  EXPECT_EQ(Run("toy-2", options).tier, "exact-build-differs");
  // Another build is another question.
  const Grafted other = Run("toy-3", options);
  EXPECT_TRUE(other.probed);
  EXPECT_EQ(other.tier, "exact");
}

TEST(RecomputeTest, ProvesOrRefutesTheImage) {
  for (const uint32_t window : {0u, 96u}) {
    const engine::ToyOptions options = {.sliding_window = window, .kernel_quantum = 8};
    Toy toy = NewToy(options);
    Result<Captured> captured = Capture(*toy.context, *toy.model, Request(Prompt(*toy.model, 150)));
    ASSERT_TRUE(captured.ok());
    Captured forged = *captured;
    const File file = Encode(std::move(*captured));
    const Result<artifact::Reader> reader = file.Open();
    Result<Recomputed> again = Recompute(*toy.context, *toy.model, *reader);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE(again->identical);

    // Every checksum holds, the content is another.
    const size_t at = forged.image.size() - 40;
    forged.image[at] ^= 1;
    forged.parts.manifest.id.clear();
    const File forged_file = Encode(std::move(forged));
    const Result<artifact::Reader> forged_reader = forged_file.Open();
    again = Recompute(*toy.context, *toy.model, *forged_reader);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_FALSE(again->identical);
    EXPECT_EQ(again->first_difference, at);
  }
}

TEST(RecomputeTest, ChecksBeforeItComputes) {
  Toy source = NewToy();
  const File file = CaptureFile(source, Request(Prompt(*source.model, 100)));
  const Result<artifact::Reader> reader = file.Open();
  Toy other = NewToy({.weight_seed = 2, .kernel_quantum = 8});
  SpyContext spy(*other.context);
  EXPECT_EQ(Recompute(spy, *other.model, *reader).status().code(), Code::kMismatch);
  EXPECT_EQ(spy.decodes, 0);
  const File longer = CaptureFile(source, Request(Prompt(*source.model, 300)));
  const Result<artifact::Reader> longer_reader = longer.Open();
  const Result<Recomputed> stopped = Recompute(*source.context, *source.model, *longer_reader,
                                               [](size_t, size_t) { return false; });
  EXPECT_EQ(stopped.status().code(), Code::kCancelled);
}

}  // namespace
}  // namespace kvgraft::session
