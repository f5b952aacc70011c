#include "kvgraft/eval/restore_request.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/file.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/session/capture.h"
#include "kvgraft/session/generate.h"

namespace kvgraft::eval {
namespace {

using engine::Context;
using engine::Schedule;
using engine::Token;
using Json = nlohmann::json;

constexpr size_t kMaxTrafficTokens = 64;

const char* AttentionName(engine::Attention attention) {
  return attention == engine::Attention::kOn    ? "on"
         : attention == engine::Attention::kOff ? "off"
                                                : "auto";
}

Json ContextToJson(const engine::ContextOptions& o) {
  return {{"n_ctx", o.n_ctx},
          {"n_ubatch", o.n_ubatch},
          {"n_threads", o.n_threads},
          {"attention", AttentionName(o.attention)},
          {"row_quantum", o.row_quantum},
          {"type_k", o.type_k},
          {"type_v", o.type_v},
          {"swa_full", o.swa_full},
          {"rope_freq_base", o.rope_freq_base},
          {"rope_freq_scale", o.rope_freq_scale}};
}

engine::ContextOptions ContextFromJson(const Json& j) {
  engine::ContextOptions o;
  o.n_ctx = j.at("n_ctx").get<uint32_t>();
  o.n_ubatch = j.at("n_ubatch").get<uint32_t>();
  o.n_threads = j.at("n_threads").get<uint32_t>();
  const std::string attention = j.at("attention").get<std::string>();
  o.attention = attention == "on"    ? engine::Attention::kOn
                : attention == "off" ? engine::Attention::kOff
                                     : engine::Attention::kAuto;
  o.row_quantum = j.at("row_quantum").get<uint32_t>();
  o.type_k = j.at("type_k").get<std::string>();
  o.type_v = j.at("type_v").get<std::string>();
  o.swa_full = j.at("swa_full").get<bool>();
  o.rope_freq_base = j.at("rope_freq_base").get<float>();
  o.rope_freq_scale = j.at("rope_freq_scale").get<float>();
  return o;
}

std::string FloatBytes(std::span<const float> values) {
  ByteWriter out;
  for (const float v : values) out.U32(std::bit_cast<uint32_t>(v));
  return std::string(AsChars(out.bytes()));
}

Result<std::vector<float>> ReadFloats(const std::string& path, size_t n) {
  KVG_ASSIGN(const std::string bytes, ReadFile(path, n * sizeof(float)));
  if (bytes.size() != n * sizeof(float)) {
    return Status(Code::kCorrupt, path + ": " + std::to_string(bytes.size()) +
                                      " bytes, expected the logits' " +
                                      std::to_string(n * sizeof(float)));
  }
  ByteReader in(AsBytes(bytes), path);
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) {
    KVG_ASSIGN(const uint32_t bits, in.U32());
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

Status CheckSteps(std::span<const Step> steps, size_t n_tokens) {
  for (const Step& s : steps) {
    if (s.first > n_tokens || s.count > n_tokens - s.first) {
      return Status(Code::kInvalidArgument, "restore request: a step ends after the " +
                                                std::to_string(n_tokens) + " tokens");
    }
  }
  return Status::Ok();
}

Status DecodeSteps(Context& context, std::span<const Token> tokens, std::span<const Step> steps,
                   Random& random, engine::Logits* logits) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (random.Chance(1, 2)) {
      KVG_RETURN(context.RunUnrelatedTraffic(random.Next(), random.Between(1, kMaxTrafficTokens)));
    }
    context.SetPaddingSeed(random.Next());
    const size_t size = step.one_by_one ? 1 : step.count;
    for (size_t done = 0; done < step.count; done += size) {
      const bool last = i + 1 == steps.size() && done + size == step.count && logits != nullptr;
      KVG_RETURN(context.Decode(tokens.subspan(step.first + done, size), Schedule::kExact,
                                last ? 1 : 0, last ? logits : nullptr));
    }
  }
  return Status::Ok();
}

}  // namespace

Token Argmax(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Result<std::string> HashState(Context& context) {
  KVG_ASSIGN(const ImageBuffer image, session::TakeImage(context));
  return Sha256Hex(image);
}

Status DecodeDisturbed(Context& context, std::span<const Token> tokens, std::span<const Step> steps,
                       uint32_t n_threads, uint64_t disturb_seed, engine::Logits* logits) {
  KVG_RETURN(CheckSteps(steps, tokens.size()));
  const uint32_t threads_before = context.options().n_threads;
  if (n_threads > 0) KVG_RETURN(context.SetThreads(n_threads));
  Random random(disturb_seed);
  const Status status = DecodeSteps(context, tokens, steps, random, logits);
  context.SetPaddingSeed(std::nullopt);
  KVG_RETURN(context.SetThreads(threads_before));
  return status;
}

Status FinishArm(Context& context, const engine::Model& model, std::span<const Token> tokens,
                 uint32_t n, ArmOutcome* outcome) {
  KVG_ASSIGN(outcome->state_sha256, HashState(context));
  outcome->final_state_sha256 = outcome->state_sha256;
  if (n == 0) return Status::Ok();
  const Token first = Argmax(outcome->logits);
  outcome->generated = {first};
  if (n > 1) {
    session::GenerateOptions options;
    options.max_tokens = n - 1;
    options.ignore_eos = true;
    KVG_ASSIGN(const session::Generation generation,
               session::Generate(context, model, tokens, {&first, 1}, options));
    outcome->generated.insert(outcome->generated.end(), generation.tokens.begin(),
                              generation.tokens.end());
  }
  // The last choices are not in the state yet.
  std::vector<Token> all(tokens.begin(), tokens.end());
  all.insert(all.end(), outcome->generated.begin(), outcome->generated.end());
  const auto n_past = static_cast<size_t>(context.n_past());
  if (n_past < tokens.size() || n_past > all.size()) {
    return Status(Code::kInternal, "proof: the context holds " + std::to_string(n_past) +
                                       " tokens after generating, expected " +
                                       std::to_string(tokens.size()) + " to " +
                                       std::to_string(all.size()));
  }
  if (n_past < all.size()) {
    KVG_RETURN(
        context.Decode(std::span<const Token>(all).subspan(n_past), Schedule::kExact, 0, nullptr));
  }
  KVG_ASSIGN(outcome->final_state_sha256, HashState(context));
  return Status::Ok();
}

std::string MakeRestoreRequest(const RestoreRequest& request) {
  Json steps = Json::array();
  for (const Step& s : request.steps) steps.push_back({s.first, s.count, s.one_by_one});
  const Json json = {{"artifact", request.artifact_path},
                     {"logits_path", request.logits_path},
                     {"rest", request.rest},
                     {"steps", std::move(steps)},
                     {"n_threads", request.n_threads},
                     {"disturb_seed", request.disturb_seed},
                     {"generate_tokens", request.generate_tokens},
                     {"context", ContextToJson(request.context)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<RestoreRequest> ParseRestoreRequest(std::string_view json) {
  try {
    const Json j = Json::parse(json);
    RestoreRequest r;
    r.artifact_path = j.at("artifact").get<std::string>();
    r.logits_path = j.at("logits_path").get<std::string>();
    r.rest = j.at("rest").get<std::vector<Token>>();
    for (const Json& s : j.at("steps")) {
      r.steps.push_back({s.at(0).get<uint32_t>(), s.at(1).get<uint32_t>(), s.at(2).get<bool>()});
    }
    r.n_threads = j.at("n_threads").get<uint32_t>();
    r.disturb_seed = j.at("disturb_seed").get<uint64_t>();
    r.generate_tokens = j.at("generate_tokens").get<uint32_t>();
    r.context = ContextFromJson(j.at("context"));
    return r;
  } catch (const Json::exception& e) {
    return Status(Code::kInvalidArgument, std::string("restore request: ") + e.what());
  }
}

Result<std::string> RunRestoreRequest(engine::Model& model, std::string_view request_json) {
  KVG_ASSIGN(const RestoreRequest request, ParseRestoreRequest(request_json));
  KVG_ASSIGN(const artifact::Reader reader, artifact::Reader::Open(request.artifact_path));
  KVG_ASSIGN(const std::unique_ptr<Context> context, model.NewContext(request.context));
  KVG_ASSIGN(const session::Grafted grafted,
             session::Graft(*context, model, reader,
                            {.probe = session::ProbePolicy::kAlways, .verified_schedule = true}));
  std::vector<Token> tokens = reader.tokens();
  tokens.insert(tokens.end(), request.rest.begin(), request.rest.end());
  ArmOutcome outcome;
  engine::Logits logits;
  KVG_RETURN(DecodeDisturbed(*context, tokens, request.steps, request.n_threads,
                             request.disturb_seed, &logits));
  outcome.logits = std::move(logits.values);
  if (outcome.logits.empty()) {
    return Status(Code::kInvalidArgument, "restore request: no token to decode after the artifact");
  }
  KVG_RETURN(FinishArm(*context, model, tokens, request.generate_tokens, &outcome));
  KVG_RETURN(WriteFileAtomic(request.logits_path, FloatBytes(outcome.logits)));
  const Json json = {{"state_sha256", outcome.state_sha256},
                     {"generated", outcome.generated},
                     {"final_state_sha256", outcome.final_state_sha256},
                     {"tier", grafted.tier},
                     {"tier_reason", grafted.tier_reason},
                     {"n_restored", grafted.tokens_reused}};
  return json.dump();
}

Result<ArmOutcome> ParseRestoreAnswer(std::string_view answer_json, const std::string& logits_path,
                                      size_t n_vocab) {
  ArmOutcome outcome;
  try {
    const Json j = Json::parse(answer_json);
    outcome.state_sha256 = j.at("state_sha256").get<std::string>();
    outcome.generated = j.at("generated").get<std::vector<Token>>();
    outcome.final_state_sha256 = j.at("final_state_sha256").get<std::string>();
    outcome.tier = j.at("tier").get<std::string>();
    outcome.n_restored = j.at("n_restored").get<uint32_t>();
  } catch (const Json::exception& e) {
    return Status(Code::kInternal, std::string("the other process gave no answer: ") + e.what());
  }
  KVG_ASSIGN(outcome.logits, ReadFloats(logits_path, n_vocab));
  return outcome;
}

}  // namespace kvgraft::eval
