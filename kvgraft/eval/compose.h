// What composing artifacts costs in quality, and gains in time: questions over several texts, each
// answered after an exact prefill, after compositions with 0 to 64 link tokens, and without any
// text, on the same model in the same run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvgraft/engine/engine.h"
#include "kvgraft/eval/compose_questions.h"
#include "kvgraft/session/drift.h"

namespace kvgraft::eval {

struct ComposeOptions {
  // Composed arms: with the tokens that the gate holds, decoded as `ask` does it.
  std::vector<uint32_t> link_tokens = {0, 4, 16, 32, 64};
  std::vector<session::DriftRecord> gates;  // links without one get no verdicts
  uint32_t max_answer = 12;                 // tokens of an answer, greedy
  uint64_t seed = 1;                        // of the order of the texts
  engine::ContextOptions context;           // the profile's; n_ctx is set here
};

// One way to have the texts in front of a question.
struct ComposeArm {
  std::string name;  // "full", "none", "paste" (no link, nothing held), "link-16" ...
  double ms = 0;     // from the captured states (full: from the tokens) to the composed state
  uint32_t rows = 0, top1 = 0;  // answer tokens, and where the likeliest token is full's
  double kl = 0;                // mean over the answer's tokens of KL(full || this), nats
  double gold_loss = 0;         // mean loss of the answer's tokens
  bool correct = false;         // the greedy answer contains the expected one
  std::string answer;
  bool gated = false, passed = false;  // the gate was asked; all artifacts passed
  double delta = 0;                    // largest of the artifacts behind the first
};

struct ComposeItem {
  std::string id, kind;
  uint32_t n_chunks = 0, n_tokens = 0;
  std::vector<ComposeArm> arms;  // "full" first
};

// A question costs about the prefill of its texts, once more the first time that a text is seen,
// and for each link number link + 33 tokens a text behind the first, plus the question.
class ComposeMeasurement {
 public:
  ComposeMeasurement(engine::Model& model, ComposeOptions options);
  ~ComposeMeasurement();

  // kUnsupported for states without planes; kInvalidArgument for options that cannot be.
  Status Start();
  // `progress` is asked during prefills, to interrupt.
  Result<ComposeItem> Run(const ComposeQuestion& question, const engine::Progress& progress = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One line of JSON. FromJson: kCorrupt.
std::string ComposeItemToJson(const ComposeItem& item);
Result<ComposeItem> ComposeItemFromJson(std::string_view json);

// One arm over the items of one kind, against "full" item by item; errors are standard errors of
// the mean over items.
struct ComposeSummary {
  struct Mean {
    double mean = 0, error = 0;
  };
  std::string arm, kind;  // kind "all", "one", "two"
  uint32_t items = 0, rows = 0;
  Mean kl, gold_loss_minus_full, ms;
  double top1 = 0;                                     // share of rows
  uint32_t correct = 0, only_full = 0, only_this = 0;  // answers; of one arm alone
  double mcnemar_p = 1;                                // exact, two-sided
  uint32_t gated = 0, fell_back = 0;  // items that the gate was asked about, and said no to
  Mean kl_accepted, kl_rejected;
  // As `ask` answers: this arm where the gate accepts, the exact prefill where not.
  uint32_t correct_gated = 0;
};
std::vector<ComposeSummary> SummariseCompose(const std::vector<ComposeItem>& items);

// Two-sided exact p of McNemar's test with b and c discordant pairs.
double McNemarP(uint32_t b, uint32_t c);

}  // namespace kvgraft::eval
