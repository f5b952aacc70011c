#include "kvgraft/eval/compose.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "kvgraft/engine/toy_engine.h"

namespace kvgraft::eval {
namespace {

using ::testing::HasSubstr;

ComposeQuestion Question() {
  return {"q1",
          "two",
          {"The keeper of the north lighthouse is Anna Berg. She counts the ships at night, and "
           "writes them down in pencil before the lamp is lit again.",
           "The badge number of Anna Berg is 48213. It is painted over the door of the boat house, "
           "where nobody has read it for eleven years.",
           "Cod eggs float on a boundary that a swimmer would feel across the knees, she says."},
          "What is the badge number of the keeper of the north lighthouse?",
          {"48213"}};
}

TEST(ComposeEval, BuiltInQuestionsPlantTheirAnswers) {
  const auto questions = BuiltInComposeQuestions(4, 1);
  ASSERT_EQ(questions.size(), 48u);
  std::set<std::string> ids;
  size_t two = 0;
  for (const ComposeQuestion& q : questions) {
    ids.insert(q.id);
    EXPECT_GE(q.chunks.size(), 2u);
    EXPECT_LE(q.chunks.size(), 6u);
    size_t holding = 0;
    for (const std::string& chunk : q.chunks) {
      EXPECT_GT(chunk.size(), 250u);
      EXPECT_LT(chunk.size(), 1100u);
      holding += ContainsAnswer(chunk, q.answers) ? 1 : 0;
    }
    EXPECT_EQ(holding, 1u) << q.id;
    EXPECT_EQ(std::set(q.chunks.begin(), q.chunks.end()).size(), q.chunks.size());
    two += q.kind == "two" ? 1 : 0;
  }
  EXPECT_EQ(two, 24u);
  EXPECT_EQ(ids.size(), 48u);
  EXPECT_EQ(BuiltInComposeQuestions(4, 1)[40].chunks, questions[40].chunks);
  EXPECT_NE(BuiltInComposeQuestions(4, 2)[40].chunks, questions[40].chunks);
}

TEST(ComposeEval, AnswersAreFoundAsWords) {
  EXPECT_TRUE(ContainsAnswer("It is 48,213.", {"48213"}));
  EXPECT_TRUE(ContainsAnswer("**Anna Berg**, surely", {"the anna berg"}));
  EXPECT_FALSE(ContainsAnswer("148213", {"48213"}));
  EXPECT_FALSE(ContainsAnswer("", {"48213"}));
  EXPECT_FALSE(ContainsAnswer("anything", {"..."}));
}

TEST(ComposeEval, ReadsQuestionsAndNamesTheLine) {
  const std::string good =
      R"({"id":"a","kind":"one","chunks":["x","y"],"question":"?","answers":["z"]})";
  ASSERT_EQ(ParseComposeQuestions(good + "\n\n")->size(), 1u);
  const auto says = [&](const std::string& text, const char* what) {
    EXPECT_THAT(ParseComposeQuestions(text).status().message(), HasSubstr(what));
  };
  says("", "has none");
  says(good + "\n" + good, "line 2: id 'a' is there twice");
  says("\n{", "line 2");
  says(R"({"id":"a","kind":"three","chunks":["x","y"],"question":"?","answers":["z"]})", "kind");
  says(R"({"id":"a","kind":"one","chunks":["x"],"question":"?","answers":["z"]})", "2 to 6");
  says(R"({"id":"a","kind":"one","chunks":["x","y"],"question":"?","answers":[]})", "answers");
}

TEST(ComposeEval, ArmsAreHeldAgainstTheExactPrefill) {
  auto model = engine::NewToyModel({.kernel_quantum = 8});
  ComposeOptions options;
  options.link_tokens = {0, 16, 10000};
  options.context.n_threads = 2;
  for (const uint32_t link : options.link_tokens) {
    session::DriftRecord& gate = options.gates.emplace_back();
    gate.usable = true;
    gate.link_tokens = link;
    gate.threshold = link == 16 ? -100 : 100;
  }
  ComposeMeasurement measurement(*model, options);
  ASSERT_TRUE(measurement.Start().ok());
  const auto item = measurement.Run(Question());
  ASSERT_TRUE(item.ok()) << item.status().message();
  ASSERT_EQ(item->arms.size(), 6u);
  const auto arm = [&](size_t i) { return item->arms[i]; };
  EXPECT_EQ(arm(0).name, "full");
  EXPECT_EQ(arm(0).kl, 0);
  EXPECT_EQ(arm(0).rows, 5u);
  EXPECT_EQ(arm(0).top1, 5u);
  EXPECT_EQ(arm(1).name, "none");
  EXPECT_GT(arm(1).kl, 0);
  EXPECT_GT(arm(2).kl, 0);
  // All linked: an exact prefill, which nothing has to judge.
  EXPECT_EQ(arm(5).name, "link-10000");
  EXPECT_EQ(arm(5).kl, 0);
  EXPECT_EQ(arm(5).gold_loss, arm(0).gold_loss);
  EXPECT_EQ(arm(5).answer, arm(0).answer);
  EXPECT_TRUE(arm(5).passed);
  EXPECT_TRUE(arm(3).gated && arm(3).passed);
  EXPECT_TRUE(arm(4).gated && !arm(4).passed);

  const auto back = ComposeItemFromJson(ComposeItemToJson(*item));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(ComposeItemToJson(*back), ComposeItemToJson(*item));
  EXPECT_EQ(ComposeItemFromJson("{}").status().code(), Code::kCorrupt);
}

TEST(ComposeEval, SummariesArePaired) {
  std::vector<ComposeItem> items(4);
  for (size_t i = 0; i < 4; ++i) {
    items[i].id = std::to_string(i);
    items[i].kind = i < 3 ? "one" : "two";
    ComposeArm full{"full"}, arm{"link-16"};
    full.rows = arm.rows = 4;
    full.correct = i < 2;
    arm.correct = i == 2;
    full.gold_loss = 1;
    arm.gold_loss = 1.5;
    arm.kl = 0.1 * static_cast<double>(i);
    arm.top1 = 2;
    arm.gated = true;
    arm.passed = i != 3;
    items[i].arms = {full, arm};
  }
  const auto summaries = SummariseCompose(items);
  ASSERT_EQ(summaries.size(), 6u);
  const ComposeSummary& s = summaries[3];
  EXPECT_EQ(s.arm + s.kind, "link-16all");
  EXPECT_EQ(s.items, 4u);
  EXPECT_NEAR(s.kl.mean, 0.15, 1e-12);
  EXPECT_NEAR(s.gold_loss_minus_full.mean, 0.5, 1e-12);
  EXPECT_EQ(s.only_full, 2u);
  EXPECT_EQ(s.only_this, 1u);
  EXPECT_NEAR(s.mcnemar_p, 1.0, 1e-12);
  EXPECT_EQ(s.fell_back, 1u);
  EXPECT_NEAR(s.kl_accepted.mean, 0.1, 1e-12);
  EXPECT_NEAR(s.kl_rejected.mean, 0.3, 1e-12);
  EXPECT_EQ(s.correct_gated, 1u);
  EXPECT_EQ(summaries[5].items, 1u);
  EXPECT_NEAR(McNemarP(0, 5), 0.0625, 1e-9);
  EXPECT_EQ(McNemarP(0, 0), 1);
}

}  // namespace
}  // namespace kvgraft::eval
