// States that are recurrent, or in part (BlockContext): what they can do, and where they stop.
#include <algorithm>

#include "kvgraft/graft/move.h"
#include "kvgraft/math/cells.h"
#include "tests/models/models.h"

namespace kvgraft {
namespace {

using engine::Context;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using testing::LoadTiny;
using testing::NewContextOrFail;
using testing::RandomTokens;
using testing::SaveOrFail;

class Recurrent : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = LoadTiny(GetParam());
    ASSERT_TRUE(model_);
    context_ = NewContextOrFail(*model_, testing::TinyContext());
    ASSERT_TRUE(context_);
  }
  std::vector<float> Last(std::span<const Token> tokens, Schedule schedule = Schedule::kExact) {
    Logits logits;
    KVG_EXPECT_OK(context_->Decode(tokens, schedule, 1, &logits));
    return logits.values;
  }

  const std::vector<Token> tokens_ = RandomTokens(400, 11);
  std::unique_ptr<engine::Model> model_;
  std::unique_ptr<Context> context_;
};
INSTANTIATE_TEST_SUITE_P(Tiny, Recurrent, ::testing::Values("mamba", "lfm2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Recurrent, SaysWhatItIs) {
  EXPECT_TRUE(model_->info().recurrent);
  EXPECT_EQ(model_->info().unsupported, "");
  EXPECT_EQ(model_->info().state_alignment, 64u);
}

// ik_llama.cpp#1754: a recurrent state that goes back by too few steps. Rejected drafts are cut
// off, and what follows is what a cold run gives.
TEST_P(Recurrent, GoingBackIsExact) {
  const std::span<const Token> all(tokens_);
  std::vector<std::vector<float>> cold;
  for (const size_t n : {101u, 104u, 110u, 150u}) {
    KVG_ASSERT_OK(context_->Clear());
    cold.push_back(Last(all.first(n)));
  }
  const std::vector<Token> wrong = RandomTokens(30, 5);
  KVG_ASSERT_OK(context_->Clear());
  Last(all.first(100));
  for (const auto& [cut, to, which] : {std::tuple{100, 101, 0}, {101, 104, 1}, {104, 110, 2}}) {
    Last(std::span(wrong).first(7));  // a draft that fails, over a border at times
    KVG_ASSERT_OK(context_->Truncate(cut));
    EXPECT_EQ(context_->n_past(), cut);
    EXPECT_EQ(Last(all.subspan(static_cast<size_t>(cut), static_cast<size_t>(to - cut))),
              cold[static_cast<size_t>(which)])
        << cut;
  }
  // Farther back, over several borders, and after single rows that were not exact.
  for (size_t i = 110; i < 140; ++i) Last(all.subspan(i, 1), Schedule::kFast);
  KVG_ASSERT_OK(context_->Truncate(110));
  EXPECT_EQ(Last(all.subspan(110, 40)), cold[3]);
}

// A recurrent state is valid at one position: what lies before the checkpoints is refused, and the
// state is as it was.
TEST_P(Recurrent, CannotGoBackBehindItsCheckpoints) {
  const std::span<const Token> all(tokens_);
  KVG_ASSERT_OK(context_->Decode(all.first(128), Schedule::kExact, 0, nullptr));
  const std::vector<uint8_t> image = SaveOrFail(*context_);
  const std::vector<float> next = Last(all.subspan(128, 5));
  KVG_ASSERT_OK(context_->LoadImage(image, 128));
  Last(all.subspan(128, 4));
  const Status status = context_->Truncate(120);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("checkpoints"), std::string::npos) << status.message();
  EXPECT_EQ(context_->n_past(), 132);
  EXPECT_EQ(Last(all.subspan(132, 1)), next);
  KVG_EXPECT_OK(context_->Truncate(0));
}

// However it was split, a state can go back to the last multiple of 64, where artifacts end.
TEST_P(Recurrent, GoesBackToWhereArtifactsEnd) {
  const std::span<const Token> all(tokens_);
  KVG_ASSERT_OK(context_->Decode(all.first(128), Schedule::kExact, 0, nullptr));
  const std::vector<uint8_t> at_128 = SaveOrFail(*context_);
  for (const size_t first : {1u, 60u, 100u, 128u, 130u}) {
    KVG_ASSERT_OK(context_->Clear());
    Last(all.first(first));
    for (size_t i = first; i < 190; ++i) Last(all.subspan(i, 1));
    KVG_ASSERT_OK(context_->Truncate(128));
    EXPECT_TRUE(SaveOrFail(*context_) == at_128) << first;
  }
}

// An interruption loses nothing of what was there.
TEST_P(Recurrent, InterruptedGoesOn) {
  const std::span<const Token> all(tokens_);
  const std::vector<float> cold = Last(all);
  KVG_ASSERT_OK(context_->Clear());
  Logits logits;
  int calls = 0;
  const Status status = context_->Decode(all, Schedule::kExact, 1, &logits,
                                         [&](size_t, size_t) { return ++calls < 2; });
  EXPECT_EQ(status.code(), Code::kCancelled);
  const auto held = static_cast<size_t>(context_->n_past());
  EXPECT_LT(held, all.size());
  EXPECT_EQ(Last(all.subspan(held)), cold);
}

TEST_P(Recurrent, OtherTrafficDoesNotTouchIt) {
  const std::span<const Token> all(tokens_);
  const std::vector<float> cold = Last(all.first(100));
  KVG_ASSERT_OK(context_->Clear());
  Last(all.first(90));
  KVG_ASSERT_OK(context_->RunUnrelatedTraffic(7, 60));
  EXPECT_EQ(Last(all.subspan(90, 10)), cold);
  EXPECT_EQ(context_->ShiftByEngine(3).code(), Code::kUnsupported);
}

// As arrays: one row a recurrent layer and kind, at the last token's position, beside the keys and
// values that a hybrid has.
TEST_P(Recurrent, HasPlanes) {
  auto layout = context_->Layout();
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_TRUE((*layout)->recurrent());
  EXPECT_EQ((*layout)->tables.back(), TableKind::kRecurrent);
  const auto count = [&](StreamKind kind) {
    return std::count_if((*layout)->streams.begin(), (*layout)->streams.end(),
                         [kind](const StreamSpec& s) { return s.kind == kind; });
  };
  const bool mamba = std::string(GetParam()) == "mamba";
  EXPECT_GT(count(StreamKind::kConvState), 0);
  EXPECT_EQ(count(StreamKind::kScanState), mamba ? count(StreamKind::kConvState) : 0);
  EXPECT_EQ(count(StreamKind::kKey) + count(StreamKind::kConvState), model_->info().n_layers);
  EXPECT_EQ(count(StreamKind::kKey) > 0, !mamba);

  KVG_ASSERT_OK(context_->Decode(std::span(tokens_).first(128), Schedule::kExact, 0, nullptr));
  const std::vector<uint8_t> image = SaveOrFail(*context_);
  auto view = context_->ViewImage(ByteSpan(image));
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->positions.back(), std::vector<int32_t>{127});
  auto built = context_->FormatImage(view->positions);
  ASSERT_TRUE(built.ok()) << built.status().message();
  auto to = context_->ViewImage(MutableByteSpan(*built));
  ASSERT_TRUE(to.ok()) << to.status().message();
  for (size_t s = 0; s < view->streams.size(); ++s) {
    const StreamSpec& spec = (*layout)->streams[s];
    std::vector<float> cells(view->n_cells(s) * spec.width());
    KVG_ASSERT_OK(math::ReadCells(*view, s, 0, view->n_cells(s), cells));
    EXPECT_TRUE(std::any_of(cells.begin(), cells.end(), [](float x) { return x != 0; }))
        << StreamKindName(spec.kind) << " of layer " << spec.layer;
    KVG_ASSERT_OK(math::WriteCells(*to, s, 0, view->n_cells(s), cells));
  }
  EXPECT_TRUE(std::ranges::equal(*built, image));
  KVG_EXPECT_OK(context_->LoadImage(*built, 128));
}

// Valid at one position: as arrays it can be looked at, not moved, cut or joined.
TEST_P(Recurrent, KeepsToItsPosition) {
  KVG_ASSERT_OK(context_->Decode(std::span(tokens_).first(64), Schedule::kExact, 0, nullptr));
  std::vector<uint8_t> image = SaveOrFail(*context_);
  const std::vector<uint8_t> before = image;
  auto view = context_->ViewImage(MutableByteSpan(image));
  ASSERT_TRUE(view.ok()) << view.status().message();
  std::vector<std::vector<int32_t>> positions = view->positions;
  EXPECT_EQ(graft::MoveKeys(&*view, 5).code(), Code::kUnsupported);
  const graft::Placement one[] = {{0, 0, 1, 0, 0}};
  EXPECT_EQ(graft::PlaceCells(math::Readable(*view), one, *view).code(), Code::kUnsupported);
  EXPECT_EQ(context_->StorePositions(image, positions).code(), Code::kUnsupported);
  EXPECT_EQ(context_->ShiftByEngine(5).code(), Code::kUnsupported);
  EXPECT_EQ(image, before);
  ++positions.back().back();
  if (positions.size() > 1) {  // a hybrid's parts end together
    EXPECT_EQ(context_->FormatImage(positions).status().code(), Code::kInvalidArgument);
  }
  positions.back().push_back(70);
  EXPECT_EQ(context_->FormatImage(positions).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvgraft
