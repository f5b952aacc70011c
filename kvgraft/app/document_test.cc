#include "kvgraft/app/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kvgraft/app/process.h"
#include "kvgraft/engine/toy_engine.h"

namespace kvgraft::app {
namespace {

using ::testing::HasSubstr;

TEST(FindInvalidUtf8, KnowsTheBorders) {
  const std::string all_good = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\xED\x9F\xBF\xF4\x8F\xBF\xBF";
  EXPECT_EQ(FindInvalidUtf8(all_good), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8(""), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8(std::string("a\0b", 3)), std::string::npos);
  const std::pair<std::string, size_t> bad[] = {
      {"ab\xFF", 2},
      {"\x80", 0},
      {"\xC0\x80", 0},
      {"\xC1\xBF", 0},
      {"a\xC3", 1},
      {"\xE2\x82", 0},
      {"\xE0\x9F\xBF", 0},
      {"\xED\xA0\x80", 0},
      {"\xF0\x8F\xBF\xBF", 0},
      {"\xF5\x80\x80\x80", 0},
      {"\xF4\x90\x80\x80", 0},
      {"\xC3\x28", 0},
  };
  for (const auto& [text, at] : bad) EXPECT_EQ(FindInvalidUtf8(text), at) << text;
}

TEST(ReadDocument, KeepsEveryByteAndSaysWhatIsWrong) {
  const std::string path = ::testing::TempDir() + "/document_test.txt";
  const std::string content = std::string("\xEF\xBB\xBFline\r\n\0end", 13);
  std::ofstream(path, std::ios::binary) << content;
  auto text = ReadDocument(path);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, content);
  std::ofstream(path, std::ios::binary) << "caf\xE9";
  EXPECT_THAT(ReadDocument(path).status().message(), HasSubstr("not UTF-8 at byte 3"));
  EXPECT_EQ(ReadDocument(path + ".none").status().code(), Code::kNotFound);
  EXPECT_EQ(ReadDocument(::testing::TempDir()).status().code(), Code::kIo);
}

TEST(ParseMessages, RolesAndContents) {
  auto messages =
      ParseMessages(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  ASSERT_TRUE(messages.ok());
  ASSERT_EQ(messages->size(), 2u);
  EXPECT_EQ((*messages)[1].role, "assistant");
  EXPECT_EQ(ParseMessages(R"({"messages":[{"role":"user","content":"a"}]})")->size(), 1u);
  for (const char* bad : {"", "[]", "{}", "[1]", R"([{"role":"user"}])", R"([{"content":"a"}])",
                          R"([{"role":"user","content":[]}])", "[", "nul"}) {
    EXPECT_EQ(ParseMessages(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Prepare, AQuestionAloneHasNoBlankLineBefore) {
  auto model = engine::NewToyModel();
  Source document;
  document.text = "text";
  auto with = Prepare(*model, document);
  auto without = Prepare(*model, Source{});
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->prompt.head.back().text, "\n\n");
  EXPECT_NE(without->prompt.head.back().text, "\n\n");
  EXPECT_EQ(with->prompt.suffix, without->prompt.suffix);
}

TEST(RunProcess, PassesInputAndOutputOfAnySize) {
  const std::string input(3 << 20, 'x');  // more than pipes hold, in both directions
  ProcessOptions options;
  options.input = input;
  auto result = RunProcess({"cat"}, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_TRUE(result->output == input);
}

TEST(RunProcess, ExitCodesSignalsAndEnvironment) {
  EXPECT_EQ(RunProcess({"sh", "-c", "exit 7"})->exit_code, 7);
  EXPECT_EQ(RunProcess({"sh", "-c", "kill -9 $$"})->exit_code, 128 + 9);
  ProcessOptions options;
  options.environment = {{"KVGRAFT_TEST_X", "y z"}};
  EXPECT_EQ(RunProcess({"sh", "-c", "printf %s \"$KVGRAFT_TEST_X\""}, options)->output, "y z");
  // A child that does not read its input must not end us.
  const std::string input(1 << 20, 'x');
  options.input = input;
  EXPECT_EQ(RunProcess({"true"}, options)->exit_code, 0);
  EXPECT_EQ(RunProcess({"/nowhere/program"}).status().code(), Code::kIo);
}

}  // namespace
}  // namespace kvgraft::app
