#include "kvgraft/session/capture.h"

#include "kvgraft/core/hash.h"
#include "kvgraft/session/testing.h"

namespace kvgraft::session {
namespace {

using testing::CaptureFile;
using testing::Encode;
using testing::NewToy;
using testing::Options;
using testing::Prompt;
using testing::Request;
using testing::SpyContext;
using testing::Tokens;
using testing::Toy;

Captured MustCapture(Toy& toy, const CaptureRequest& request) {
  Result<Captured> captured = Capture(*toy.context, *toy.model, request);
  EXPECT_TRUE(captured.ok()) << captured.status().message();
  return captured.ok() ? std::move(*captured) : Captured();
}

// The values of docs/format.md: a change breaks every artifact's probe.
TEST(ProbeTest, TokensFollowTheFormula) {
  const artifact::Probe small = ProbeTokens(258);
  const artifact::Probe large = ProbeTokens(49152);
  ASSERT_EQ(small.suffix.size(), 7u);
  uint64_t x = 0x9E3779B9;
  for (size_t i = 0; i < 8; ++i) {
    x = (1664525 * x + 1013904223) % (1ull << 32);
    EXPECT_EQ(i < 7 ? small.suffix[i] : small.single_token, static_cast<int32_t>(x % 258));
    EXPECT_EQ(i < 7 ? large.suffix[i] : large.single_token, static_cast<int32_t>(x % 49152));
  }
  EXPECT_EQ(small.suffix[0], 70);
  EXPECT_EQ(large.suffix[0], 22468);
  EXPECT_EQ(small.padded_sha256, "");
}

TEST(ProbeTest, HashesAreOfTheLogitsAndTheContextIsCutBack) {
  Toy toy = NewToy();
  const Tokens prompt = Prompt(*toy.model, 50);
  testing::Continue(*toy.context, prompt);
  const std::vector<float> before = testing::Continue(*toy.context, {70});
  ASSERT_TRUE(toy.context->Truncate(50).ok());

  artifact::Probe probe = ProbeTokens(toy.model->info().n_vocab);
  ASSERT_TRUE(RunProbe(*toy.context, &probe).ok());
  EXPECT_EQ(toy.context->n_past(), 50);
  EXPECT_EQ(probe.single_threads, 2u);
  EXPECT_EQ(testing::Continue(*toy.context, {70}), before);

  ASSERT_TRUE(toy.context->Truncate(50).ok());
  const std::vector<float> padded = testing::Continue(*toy.context, probe.suffix);
  engine::Logits single;
  ASSERT_TRUE(
      toy.context->Decode({&probe.single_token, 1}, engine::Schedule::kFast, 1, &single).ok());
  const auto hash = [](const std::vector<float>& v) {
    return Sha256Hex(ByteSpan(reinterpret_cast<const uint8_t*>(v.data()), v.size() * 4));
  };
  EXPECT_EQ(probe.padded_sha256, hash(padded));
  EXPECT_EQ(probe.single_sha256, hash(single.values));
}

TEST(ProbeTest, NeedsRoomAndLeavesTheStateAlone) {
  Toy toy = NewToy({.kernel_quantum = 8}, Options(57));
  testing::Continue(*toy.context, Prompt(*toy.model, 50));
  artifact::Probe probe = ProbeTokens(258);
  const Status status = RunProbe(*toy.context, &probe);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_NE(status.message().find("58 tokens needed"), std::string::npos) << status.message();
  EXPECT_EQ(toy.context->n_past(), 50);
}

TEST(ProbeTest, ContextWithProbeTokensLeftInIsEmptied) {
  Toy toy = NewToy();
  testing::Continue(*toy.context, Prompt(*toy.model, 50));
  SpyContext spy(*toy.context);
  spy.fail_truncate = true;
  artifact::Probe probe = ProbeTokens(258);
  EXPECT_FALSE(RunProbe(spy, &probe).ok());
  EXPECT_EQ(spy.n_past(), 0);
}

TEST(CaptureTest, RecordsStateIdentityScheduleAndProbe) {
  Toy toy = NewToy();
  CaptureRequest request = Request(Prompt(*toy.model, 300));
  request.name = "ferry";
  request.text = "The ferry";
  request.parent = std::string(64, 'b');
  request.prompt_kind = "chat";
  request.prompt_suffix = "<end>";
  size_t last_done = 0;
  const Result<Captured> captured =
      Capture(*toy.context, *toy.model, request, [&](size_t done, size_t total) {
        EXPECT_GT(done, last_done);
        EXPECT_EQ(total, 300u);
        last_done = done;
        return true;
      });
  ASSERT_TRUE(captured.ok()) << captured.status().message();
  EXPECT_EQ(last_done, 300u);
  EXPECT_EQ(captured->tokens_computed, 300u);
  EXPECT_EQ(toy.context->n_past(), 300);

  const artifact::Manifest& m = captured->parts.manifest;
  EXPECT_EQ(m.n_tokens, 300u);
  EXPECT_EQ(m.n_image_tokens, 300u);
  EXPECT_EQ(m.identity, toy.context->identity());
  EXPECT_EQ(m.tier, "exact");
  EXPECT_EQ(m.schedule, (artifact::ScheduleInfo{.kind = "exact",
                                                .row_quantum = 8,
                                                .attention = "plain",
                                                .n_ubatch = 128,
                                                .verified = true}));
  EXPECT_EQ(m.probe.suffix, ProbeTokens(toy.model->info().n_vocab).suffix);
  EXPECT_TRUE(IsSha256Hex(m.probe.padded_sha256));
  EXPECT_TRUE(IsSha256Hex(m.probe.single_sha256));
  EXPECT_EQ(m.name, "ferry");
  EXPECT_EQ(m.parent, request.parent);
  EXPECT_EQ(m.producer, "test 1");
  EXPECT_EQ(m.prompt_kind, "chat");
  EXPECT_EQ(m.prompt_suffix, "<end>");
  EXPECT_EQ(m.created.size(), 20u);
  EXPECT_EQ(captured->parts.tokens, request.tokens);
  EXPECT_EQ(captured->parts.text, "The ferry");
  EXPECT_EQ(m.id, artifact::ContentId(m.identity, request.tokens, {}, 300, captured->image));

  Result<ImageBuffer> now = TakeImage(*toy.context);
  ASSERT_TRUE(now.ok());
  EXPECT_EQ(captured->image, *now);
}

TEST(CaptureTest, ContinuingAPrefixGivesTheArtifactOfAColdRun) {
  for (const uint32_t window : {0u, 96u}) {
    Toy cold = NewToy({.sliding_window = window, .kernel_quantum = 8});
    Toy warm = NewToy({.sliding_window = window, .kernel_quantum = 8});
    const CaptureRequest request = Request(Prompt(*cold.model, 205));
    const Captured whole = MustCapture(cold, request);
    for (const size_t prefix : {1u, 63u, 64u, 128u, 191u, 192u, 200u, 205u}) {
      ASSERT_TRUE(warm.context->Clear().ok());
      testing::Continue(*warm.context,
                        Tokens(request.tokens.begin(), request.tokens.begin() + prefix));
      const Captured continued = MustCapture(warm, request);
      EXPECT_EQ(continued.parts.manifest.id, whole.parts.manifest.id) << prefix;
      EXPECT_EQ(continued.parts.manifest.probe, whole.parts.manifest.probe) << prefix;
      EXPECT_EQ(continued.tokens_computed,
                205 - (window == 0 ? prefix : std::min<size_t>(prefix, 192)));
      EXPECT_EQ(warm.context->n_past(), 205);
    }
  }
}

// The two states differ, so must the ids: what the kernel quantum of 8 does to rows of 1.
TEST(CaptureTest, WithoutThePaddingRuleAContinuedStateIsAnotherOne) {
  Toy cold = NewToy({.kernel_quantum = 8}, Options(1024, 1));
  Toy warm = NewToy({.kernel_quantum = 8}, Options(1024, 1));
  const CaptureRequest request = Request(Prompt(*cold.model, 205));
  const Captured whole = MustCapture(cold, request);
  testing::Continue(*warm.context, Tokens(request.tokens.begin(), request.tokens.begin() + 101));
  EXPECT_NE(MustCapture(warm, request).parts.manifest.id, whole.parts.manifest.id);
}

TEST(CaptureTest, SlidingWindowImageEndsAtAnAlignedLength) {
  Toy toy = NewToy({.sliding_window = 96, .kernel_quantum = 8});
  for (const size_t n : {63u, 64u, 65u, 127u, 200u}) {
    ASSERT_TRUE(toy.context->Clear().ok());
    const CaptureRequest request = Request(Prompt(*toy.model, n));
    const Captured captured = MustCapture(toy, request);
    EXPECT_EQ(captured.parts.manifest.n_tokens, n);
    EXPECT_EQ(captured.parts.manifest.n_image_tokens, n / 64 * 64);
    EXPECT_EQ(toy.context->n_past(), static_cast<int>(n));

    Toy other = NewToy({.sliding_window = 96, .kernel_quantum = 8});
    if (n >= 64)
      testing::Continue(*other.context,
                        Tokens(request.tokens.begin(), request.tokens.begin() + n / 64 * 64));
    EXPECT_EQ(captured.image, *TakeImage(*other.context));
  }
}

// llama.cpp#1263 (off by one at the borders of a context) and mlx-examples#977 (short prompts).
TEST(CaptureTest, LengthsAtTheBordersOfTheContext) {
  for (const size_t n : {1u, 2u, 3u, 127u, 128u, 129u, 191u, 192u, 193u, 199u, 200u}) {
    Toy toy = NewToy({.kernel_quantum = 8}, Options(200));
    const Captured captured = MustCapture(toy, Request(Prompt(*toy.model, n)));
    // The probe is left out where it does not fit, the artifact is not.
    EXPECT_EQ(captured.parts.manifest.probe.padded_sha256.empty(), n > 192) << n;
    const Result<artifact::Reader> reader = Encode(captured).Open();
    EXPECT_EQ(toy.context->n_past(), static_cast<int>(n));
  }
  Toy toy = NewToy({.kernel_quantum = 8}, Options(200));
  const Result<Captured> none = Capture(*toy.context, *toy.model, Request({}));
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  const Result<Captured> more = Capture(*toy.context, *toy.model, Request(Prompt(*toy.model, 201)));
  EXPECT_EQ(more.status().code(), Code::kExhausted);
  EXPECT_NE(more.status().message().find("201 tokens, the context takes 200"), std::string::npos);
  EXPECT_NE(more.status().message().find("-c 209"), std::string::npos) << more.status().message();
}

TEST(CaptureTest, RefusesWhatCannotBe) {
  Toy toy = NewToy();
  const Result<Captured> outside = Capture(*toy.context, *toy.model, Request({1, 2, 1000000}));
  EXPECT_EQ(outside.status().code(), Code::kInvalidArgument);
  EXPECT_NE(outside.status().message().find("token 1000000 at index 2"), std::string::npos);
  EXPECT_EQ(Capture(*toy.context, *toy.model, Request({-1})).status().code(),
            Code::kInvalidArgument);
  testing::Continue(*toy.context, Prompt(*toy.model, 9));
  EXPECT_EQ(Capture(*toy.context, *toy.model, Request({1, 2})).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(toy.context->n_past(), 9);
}

TEST(CaptureTest, UnverifiedScheduleAndLeftOutProbeAreRecorded) {
  Toy toy = NewToy();
  CaptureRequest request = Request(Prompt(*toy.model, 20));
  request.verified_schedule = false;
  request.probe = false;
  const Captured captured = MustCapture(toy, request);
  EXPECT_FALSE(captured.parts.manifest.schedule.verified);
  EXPECT_EQ(captured.parts.manifest.tier, "exact");
  EXPECT_EQ(captured.parts.manifest.probe, artifact::Probe());
}

TEST(CaptureTest, InterruptedAndFailedRunsCanGoOn) {
  Toy toy = NewToy();
  const CaptureRequest request = Request(Prompt(*toy.model, 400));
  const Result<Captured> stopped =
      Capture(*toy.context, *toy.model, request, [](size_t done, size_t) { return done < 200; });
  EXPECT_EQ(stopped.status().code(), Code::kCancelled);
  const auto held = static_cast<size_t>(toy.context->n_past());
  EXPECT_GT(held, 0u);
  EXPECT_LT(held, 400u);
  const Captured resumed = MustCapture(toy, request);
  EXPECT_EQ(resumed.tokens_computed, 400 - held);
  Toy cold = NewToy();
  EXPECT_EQ(resumed.parts.manifest.id, MustCapture(cold, request).parts.manifest.id);

  SpyContext spy(*cold.context);
  ASSERT_TRUE(spy.Clear().ok());
  spy.fail_decode = 2;  // the probe's
  EXPECT_EQ(Capture(spy, *cold.model, request).status().code(), Code::kInternal);
  EXPECT_EQ(spy.n_past(), 400);
}

}  // namespace
}  // namespace kvgraft::session
