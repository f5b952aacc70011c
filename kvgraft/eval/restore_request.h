// The part of a proof that another process does: open an artifact file, graft it into a new
// context, decode the rest of the prompt, generate, and answer with hashes. Both sides are here, so
// a hidden verb of the program only passes JSON through.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/engine/engine.h"
#include "kvgraft/eval/prove_plan.h"

namespace kvgraft::eval {

struct RestoreRequest {
  std::string artifact_path;
  std::string logits_path;          // where the answer's logits go: F32 little-endian
  std::vector<engine::Token> rest;  // tokens after the artifact's
  std::vector<Step> steps;          // how they are decoded; `first` counts from the prompt's start
  uint32_t n_threads = 0;           // while decoding the rest
  uint64_t disturb_seed = 0;
  uint32_t generate_tokens = 0;
  engine::ContextOptions context;
};

// What an arm arrives at. Hashes are SHA-256 of the engine's image.
struct ArmOutcome {
  std::vector<float> logits;  // of the last prompt token
  std::string state_sha256;   // after the prompt
  std::vector<engine::Token> generated;
  std::string final_state_sha256;  // after all generated tokens
  std::string tier;                // of the graft, "" without one
  uint32_t n_restored = 0;
};

std::string MakeRestoreRequest(const RestoreRequest& request);
Result<RestoreRequest> ParseRestoreRequest(std::string_view json);

// Does what the request asks, on the same model, and returns the answer as JSON. Writes the logits
// to logits_path.
Result<std::string> RunRestoreRequest(engine::Model& model, std::string_view request_json);
// Reads the answer and the logits (n_vocab of them) that the request named.
Result<ArmOutcome> ParseRestoreAnswer(std::string_view answer_json, const std::string& logits_path,
                                      size_t n_vocab);

// Decodes `steps` of `tokens` exactly, with random padding, threads and unrelated traffic from
// `disturb_seed`; the logits of the very last token go to `logits` unless null. Afterwards padding
// is constant and the threads are as before.
Status DecodeDisturbed(engine::Context& context, std::span<const engine::Token> tokens,
                       std::span<const Step> steps, uint32_t n_threads, uint64_t disturb_seed,
                       engine::Logits* logits);

// Hashes the state, generates `n` greedy tokens after `logits` and brings the context to hold all
// of them, hashes again. `tokens`: what the context holds.
Status FinishArm(engine::Context& context, const engine::Model& model,
                 std::span<const engine::Token> tokens, uint32_t n, ArmOutcome* outcome);

// Lowest token id among the largest logits.
engine::Token Argmax(std::span<const float> logits);
// SHA-256 of the context's image.
Result<std::string> HashState(engine::Context& context);

}  // namespace kvgraft::eval
