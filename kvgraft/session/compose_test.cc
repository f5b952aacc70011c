#include "kvgraft/session/compose.h"

#include <gmock/gmock.h>

#include <cmath>

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
const Tokens kQuestion = {'H', 'o', 'w', ' ', 's', 'a', 'l', 't', 'y', '?'};

struct Two {
  explicit Two(const engine::ToyOptions& options = {.kernel_quantum = 8})
      : toy(NewToy(options)),
        a(CaptureFile(toy, Request(Prompt(*toy.model, kFirst)))),
        b(CaptureFile(toy, Request(Prompt(*toy.model, kSecond, 700)))) {}

  // The first artifact in a context of its own.
  Toy Grafted(uint32_t n_ctx = 1024) const {
    Toy target = NewToy(options_, Options(n_ctx));
    const auto reader = a.Open();
    EXPECT_TRUE(Graft(*target.context, *target.model, *reader).ok());
    return target;
  }
  // Both texts, computed.
  Tokens All() const {
    Tokens all = a.Open()->tokens();
    const Tokens behind = TokensBehind(*toy.model, *b.Open()).value();
    all.insert(all.end(), behind.begin(), behind.end());
    return all;
  }

  engine::ToyOptions options_{.kernel_quantum = 8};
  Toy toy;
  File a, b;
};

double Distance(const std::vector<float>& x, const std::vector<float>& y) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    apart += std::pow(double{x[i]} - y[i], 2);
    size += std::pow(double{y[i]}, 2);
  }
  return std::sqrt(apart / size);
}

TEST(Compose, TheSecondTextStandsBehindTheFirst) {
  const Two two;
  Toy target = two.Grafted();
  const ImageBuffer before = TakeImage(*target.context).value();
  const auto attached = Attach(*target.context, *target.model, *two.b.Open());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->tokens_dropped, 1u);  // the second beginning of sequence
  EXPECT_EQ(attached->tokens_computed, 16u);
  EXPECT_EQ(attached->tokens_reused, kSecond - 17);
  EXPECT_EQ(target.context->n_past(), static_cast<engine::Pos>(kFirst + kSecond - 1));

  // What was there is untouched, and the cells' positions have no gap.
  const ImageBuffer after = TakeImage(*target.context).value();
  const auto was = target.context->ViewImage(ByteSpan(before));
  const auto is = target.context->ViewImage(ByteSpan(after));
  ASSERT_TRUE(was.ok() && is.ok());
  ASSERT_EQ(is->positions[0].size(), kFirst + kSecond - 1);
  EXPECT_EQ(is->positions[0].back(), static_cast<int32_t>(kFirst + kSecond - 2));
  const size_t row = was->streams[0].stride;
  EXPECT_TRUE(std::equal(was->streams[0].data.begin(), was->streams[0].data.end(),
                         is->streams[0].data.begin()));
  EXPECT_EQ(was->streams[0].data.size(), row * kFirst);
}

// All link tokens: nothing is approximate any more.
TEST(Compose, LinkingTheWholeTextIsAnExactPrefill) {
  const Two two;
  Toy target = two.Grafted(), cold = NewToy();
  const auto attached =
      Attach(*target.context, *target.model, *two.b.Open(), {.link_tokens = 100000});
  ASSERT_TRUE(attached.ok());
  EXPECT_EQ(attached->tokens_reused, 0u);
  Continue(*cold.context, two.All());
  EXPECT_EQ(TakeImage(*target.context).value(), TakeImage(*cold.context).value());
}

// More link tokens, nearer to the full computation; none is nearer than another text.
TEST(Compose, LinkTokensBringTheAnswerNearer) {
  const Two two;
  Toy cold = NewToy();
  Continue(*cold.context, two.All());
  const std::vector<float> want = Continue(*cold.context, kQuestion);
  std::vector<double> distances;
  for (const uint32_t link : {0u, 100u, 148u}) {
    Toy target = two.Grafted();
    ASSERT_TRUE(Attach(*target.context, *target.model, *two.b.Open(), {.link_tokens = link}).ok());
    distances.push_back(Distance(Continue(*target.context, kQuestion), want));
  }
  EXPECT_LT(distances[2], distances[0]);
  EXPECT_LT(distances[1], 0.5);
  EXPECT_GT(distances[0], 0);
}

TEST(Compose, ThreeTextsAndAWindow) {
  const Two two({.sliding_window = 64, .kernel_quantum = 8});
  Toy target = NewToy({.sliding_window = 64, .kernel_quantum = 8});
  ASSERT_TRUE(Graft(*target.context, *target.model, *two.a.Open()).ok());
  for (int i = 0; i < 2; ++i) {
    const auto attached = Attach(*target.context, *target.model, *two.b.Open());
    ASSERT_TRUE(attached.ok()) << attached.status().message();
    // The image ends at a multiple of 64; what follows is computed.
    EXPECT_EQ(attached->tokens_reused, 128u - 17);
    EXPECT_EQ(attached->tokens_computed, 16u + kSecond - 128);
  }
  EXPECT_EQ(target.context->n_past(), static_cast<engine::Pos>(kFirst + 2 * (kSecond - 1)));
  Continue(*target.context, kQuestion);
}

TEST(Compose, RefusalsLeaveTheContextAsItWas) {
  const Two two;
  const auto b = two.b.Open();
  Toy empty = NewToy();
  Status status = Attach(*empty.context, *empty.model, *b).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("empty"));

  Toy small = two.Grafted(kFirst + 50);
  const ImageBuffer before = TakeImage(*small.context).value();
  status = Attach(*small.context, *small.model, *b).status();
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("350 tokens together"));
  EXPECT_EQ(TakeImage(*small.context).value(), before);

  Toy other = NewToy({.weight_seed = 9, .kernel_quantum = 8});
  Continue(*other.context, kQuestion);
  status = Attach(*other.context, *other.model, *b).status();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("model.sha256"));
  EXPECT_EQ(other.context->n_past(), 10);

  File damaged = two.b;
  damaged.bytes[damaged.bytes.size() - 100] ^= 1;
  Toy target = two.Grafted();
  EXPECT_EQ(Attach(*target.context, *target.model, *damaged.Open()).status().code(),
            Code::kCorrupt);
  EXPECT_EQ(target.context->n_past(), static_cast<engine::Pos>(kFirst));
}

TEST(Compose, AFailureInTheMiddleLeavesNothing) {
  const Two two;
  Toy target = two.Grafted();
  SpyContext spy(*target.context);
  spy.fail_load_late = true;
  EXPECT_EQ(Attach(spy, *target.model, *two.b.Open()).status().code(), Code::kInternal);
  EXPECT_EQ(spy.n_past(), 0);
  EXPECT_EQ(spy.clears, 1);
}

}  // namespace
}  // namespace kvgraft::session
