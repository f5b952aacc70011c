// Generation over a Context. Exact: every step is a padded batch, whose spare rows carry draft
// tokens looked up in the text so far, so a repetitive text costs less than a step a token; each
// accepted token is the one that a step of its own would have chosen, since rows of padded batches
// do not depend on each other: the tokens, the text and the state that is left are the same with
// drafts and without. Fast: single rows, ordinary kernels.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/engine/engine.h"
#include "kvgraft/session/draft.h"
#include "kvgraft/session/sampling.h"
#include "kvgraft/session/text_stream.h"

namespace kvgraft::session {

inline constexpr size_t kMaxStopStrings = 16;

struct GenerateOptions {
  uint32_t max_tokens = 256;
  engine::Schedule schedule = engine::Schedule::kExact;
  bool drafts = true;  // kExact only
  SamplingOptions sampling;
  std::vector<std::string> stop;  // generation ends before any of these; up to 16, not empty
  bool ignore_eos = false;
  // Called with text that is complete UTF-8 and cannot be part of a stop string any more. Returns
  // false to stop; it is not called again then, and the token that the text came from is the last.
  std::function<bool(std::string_view text)> on_text;
};

struct Generation {
  std::string text;  // without the stop string; valid UTF-8
  // As chosen, the end-of-generation token excluded; after a stop string up to the last token that
  // lies at least partly before it.
  std::vector<engine::Token> tokens;
  // "stop" (end of generation or a stop string), "length" (max_tokens, or the context is full),
  // "cancelled" (on_text).
  std::string finish_reason;
  bool end_of_generation = false;      // the model chose a token that ends generation
  uint64_t steps = 0;                  // batches decoded after the prompt
  uint64_t drafted = 0, accepted = 0;  // draft tokens tried and kept
  uint64_t n_context = 0;              // n_past() of the context afterwards
  double first_token_ms = 0;           // from the call to the first choice
  double total_ms = 0;
};

// Decodes `prompt` (at least one token; at the context's n_past) and generates. `history` is what
// the context holds before, for drafts; may be empty.
//
// Afterwards the context holds what it held, the prompt, and Generation::tokens without the last
// one, which no step has decoded yet, or with it when end_of_generation. (Fast generation on a
// model whose state cannot be cut leaves what was decoded; n_context tells.) With max_tokens 0 the
// prompt is decoded, no more.
//
// kInvalidArgument: options or an empty prompt; kExhausted: the prompt does not fit, nothing is
// decoded; kCancelled: prefill_progress. An error while generating leaves a prefix in the context.
Result<Generation> Generate(engine::Context& context, const engine::Model& model,
                            std::span<const engine::Token> history,
                            std::span<const engine::Token> prompt, const GenerateOptions& options,
                            const engine::Progress& prefill_progress = {});

}  // namespace kvgraft::session
