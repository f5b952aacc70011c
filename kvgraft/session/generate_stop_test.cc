#include <gtest/gtest.h>

#include <random>

#include "kvgraft/session/generate_testing.h"

namespace kvgraft::session {
namespace {

using namespace generate_testing;  // NOLINT: the tests of this file

// A stop string at any place of the text, over any token borders, with drafts and without: the
// text ends before it, and so do the tokens and the state.
TEST(GenerateStop, StopStrings) {
  auto model = ExactModel();
  std::mt19937_64 random(5);
  int n_inside_draft = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const Tokens prompt = RandomPrompt(random, 50);
    GenerateOptions options{.max_tokens = 60, .ignore_eos = true};
    if (trial % 2 == 1) options.sampling = Seeded(trial, 0.7f);
    const Seen whole = Watch(*model, prompt, options);
    const std::string& text = whole.generation.text;
    const size_t from = random() % (text.size() - 8);
    // Beginnings and longer strings that do not occur hold text back on the way.
    const std::string stop = text.substr(from, 1 + random() % 6);
    options.stop = {stop, text.substr(from / 2, 3) + "\x01", "\x01\x02"};
    const Seen cut = Watch(*model, prompt, options);
    options.drafts = false;
    SCOPED_TRACE(trial);
    ExpectSame(cut, Watch(*model, prompt, options));

    // Bytes can be counted as long as all of them are valid text.
    const size_t at = text.find(stop);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(cut.generation.finish_reason, "stop");
    EXPECT_FALSE(cut.generation.end_of_generation);
    EXPECT_EQ(cut.generation.text, text.substr(0, at));
    EXPECT_EQ(Join(cut.pieces), cut.generation.text);
    if (text.find("\xef\xbf\xbd") != std::string::npos) continue;
    const Tokens& all = whole.generation.tokens;
    size_t n = 0;
    for (size_t bytes = 0; bytes < at; ++n) bytes += model->TokenText(all[n], false).size();
    EXPECT_EQ(cut.generation.tokens, Tokens(all.begin(), all.begin() + n));
    EXPECT_EQ(cut.generation.n_context, prompt.size() + (n == 0 ? 0 : n - 1));
    n_inside_draft += cut.generation.accepted > 0;
  }
  EXPECT_GT(n_inside_draft, 3);
}

// A model whose tokens are words, to see what becomes of a token that a stop string cuts in two.
class WordModel : public Model {
 public:
  WordModel() : toy_(engine::NewToyModel({.kernel_quantum = 8})) {}
  const engine::ModelInfo& info() const override { return toy_->info(); }
  Result<std::unique_ptr<Context>> NewContext(const ContextOptions& options) override {
    return toy_->NewContext(options);
  }
  Result<std::vector<Token>> Tokenize(std::string_view text, bool bos,
                                      bool special) const override {
    return toy_->Tokenize(text, bos, special);
  }
  std::string TokenText(Token token, bool) const override {
    return "<" + std::to_string(token) + ">";
  }
  bool IsEndOfGeneration(Token) const override { return false; }
  Result<std::string> ApplyChatTemplate(std::span<const engine::ChatMessage> messages,
                                        bool add_assistant) const override {
    return toy_->ApplyChatTemplate(messages, add_assistant);
  }
  Result<std::vector<float>> Embed(std::string_view text) override { return toy_->Embed(text); }

 private:
  std::unique_ptr<Model> toy_;
};

TEST(GenerateStop, TokenPartlyBeforeTheStopStringIsKept) {
  WordModel model;
  const Tokens prompt = {'h', 'e', 'l', 'l', 'o'};
  const GenerateOptions options{.max_tokens = 12};
  const Seen whole = Watch(model, prompt, options);
  const Tokens& all = whole.generation.tokens;
  ASSERT_EQ(all.size(), 12u);
  // Stops at "><N>" with N the token after the first k: '>' belongs to token k-1.
  const std::string stop = "><" + std::to_string(all[5]) + ">";
  const std::string before = whole.generation.text.substr(0, whole.generation.text.find(stop));
  GenerateOptions stopping = options;
  stopping.stop = {stop};
  const Seen cut = Watch(model, prompt, stopping);
  EXPECT_EQ(cut.generation.text, before);
  size_t n = 0;
  for (size_t bytes = 0; bytes < before.size(); ++n) bytes += model.TokenText(all[n], false).size();
  EXPECT_EQ(cut.generation.tokens, Tokens(all.begin(), all.begin() + n));
  EXPECT_EQ(cut.generation.n_context, prompt.size() + n - 1);
}

TEST(GenerateStop, StreamedTextIsUtf8AndComplete) {
  auto model = ExactModel();
  std::mt19937_64 random(6);
  size_t replaced = 0;
  for (int trial = 0; trial < 10; ++trial) {
    // Hot enough for bytes above 127.
    GenerateOptions options{.max_tokens = 80, .ignore_eos = true};
    options.sampling = {.temperature = 5, .top_k = 0, .top_p = 1, .min_p = 0, .seed = random()};
    const Seen seen = Watch(*model, RandomPrompt(random, 20), options);
    EXPECT_EQ(Join(seen.pieces), seen.generation.text);
    for (const std::string& piece : seen.pieces) {
      Utf8Stream check;
      EXPECT_EQ(check.Push(piece), piece);
      EXPECT_EQ(check.Flush(), "");
    }
    replaced += seen.generation.text.find("\xef\xbf\xbd") != std::string::npos;
  }
  EXPECT_GT(replaced, 0u);
}

}  // namespace
}  // namespace kvgraft::session
