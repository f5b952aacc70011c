// Several live sequences in one engine: what the design of a server will rely on. The engine's own
// API, since our contexts keep one live sequence.
#include <llama.h>

#include <cstring>

#include "kvgraft/core/random.h"
#include "tests/models/models.h"

namespace kvgraft {
namespace {

constexpr int kStreams = 8;
constexpr int kPrompt = 100;
constexpr int kSteps = 12;

class Streams : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::RealPath("smollm2-135m");
    if (path.empty()) GTEST_SKIP() << "model smollm2-135m is not here: kvgraft models pull it";
    engine_llama::SetLogSink({});
    model_ = llama_model_load_from_file(path.c_str(), llama_model_default_params());
    ASSERT_NE(model_, nullptr);
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
  }
  void TearDown() override { llama_model_free(model_); }

  llama_context* NewContext(bool unified) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 512 * kStreams;
    params.n_batch = params.n_ubatch = 512;
    params.n_seq_max = kStreams;
    params.kv_unified = unified;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.n_threads = params.n_threads_batch = 2;
    return llama_init_from_model(model_, params);
  }

  struct Row {
    llama_token token;
    llama_pos pos;
    llama_seq_id seq;
  };
  // Decodes the rows; the logits of row 0.
  std::vector<float> Decode(llama_context* context, const std::vector<Row>& rows) {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(rows.size()), 0, 1);
    for (const Row& r : rows) {
      const int32_t i = batch.n_tokens++;
      batch.token[i] = r.token;
      batch.pos[i] = r.pos;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = r.seq;
      batch.logits[i] = 1;
    }
    EXPECT_EQ(llama_decode(context, batch), 0);
    llama_batch_free(batch);
    const float* logits = llama_get_logits_ith(context, 0);
    return {logits, logits + n_vocab_};
  }

  void Prefill(llama_context* context, llama_seq_id seq, int n, Random& random) {
    std::vector<Row> rows;
    for (int i = 0; i < n; ++i) {
      rows.push_back({static_cast<llama_token>(random.Between(100, 40000)), i, seq});
    }
    Decode(context, rows);
  }

  llama_model* model_ = nullptr;
  int n_vocab_ = 0;
};

// "With a stream per sequence, batches of 8 rows, one row a stream, idle streams filled with
// scratch rows: neighbours of other lengths change nothing."
TEST_F(Streams, NeighboursInStreamsOfTheirOwnChangeNothing) {
  std::vector<std::vector<float>> seen[2];
  for (const bool busy : {false, true}) {
    llama_context* context = NewContext(false);
    ASSERT_NE(context, nullptr);
    Random mine(1), theirs(busy ? 2 : 3);
    Prefill(context, 0, kPrompt, mine);
    int length[kStreams] = {kPrompt};
    for (int s = 1; busy && s < kStreams; ++s) {
      length[s] = 13 * s + 5;
      Prefill(context, s, length[s], theirs);
    }
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Row> rows;
      for (int s = 0; s < kStreams; ++s) {
        Random& from = s == 0 ? mine : theirs;
        rows.push_back({static_cast<llama_token>(from.Between(100, 40000)), length[s]++, s});
      }
      seen[busy].push_back(Decode(context, rows));
    }
    llama_free(context);
  }
  for (int step = 0; step < kSteps; ++step) EXPECT_TRUE(seen[0][step] == seen[1][step]) << step;
}

// "In a unified cache their cells interleave and the bits change."
TEST_F(Streams, NeighboursInAUnifiedCacheChangeTheBits) {
  int differ = 0;
  std::vector<std::vector<float>> alone;
  for (const bool busy : {false, true}) {
    llama_context* context = NewContext(true);
    ASSERT_NE(context, nullptr);
    Random mine(1), theirs(2);
    Prefill(context, 0, kPrompt, mine);
    if (busy) Prefill(context, 1, 77, theirs);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Row> rows = {
          {static_cast<llama_token>(mine.Between(100, 40000)), kPrompt + step, 0}};
      if (busy) {
        rows.push_back({static_cast<llama_token>(theirs.Between(100, 40000)), 77 + step, 1});
      }
      // The row count is held at 8 in both, so only the neighbour's cells make the difference.
      for (llama_pos i = 0; rows.size() < 8; ++i) rows.push_back({5, i, 7});
      std::vector<float> logits = Decode(context, rows);
      llama_memory_seq_rm(llama_get_memory(context), 7, -1, -1);
      if (!busy) {
        alone.push_back(std::move(logits));
      } else {
        differ += alone[static_cast<size_t>(step)] != logits;
      }
    }
    llama_free(context);
  }
  EXPECT_GT(differ, 0);
}

}  // namespace
}  // namespace kvgraft
