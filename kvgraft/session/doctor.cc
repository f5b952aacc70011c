#include "kvgraft/session/doctor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "kvgraft/core/random.h"
#include "kvgraft/core/utc.h"
#include "kvgraft/session/image_buffer.h"
#include "kvgraft/session/sample_text.h"

namespace kvgraft::session {
namespace {

using engine::Attention;
using engine::Context;
using engine::Logits;
using engine::Pos;
using engine::Schedule;
using engine::Token;
using Clock = std::chrono::steady_clock;
using Tokens = std::span<const Token>;

constexpr size_t kLastRows = 8;     // logits compared, from the end
constexpr size_t kMaxSingles = 12;  // longest run of tokens decoded one by one
constexpr size_t kMinTokens = 24;
constexpr size_t kTrafficTokens = 40;

// State and last logits of one way to decode the text.
struct Outcome {
  ImageBuffer image;
  std::vector<float> logits;  // [n_rows][n_vocab], of the last n_rows tokens
  size_t n_rows = 0;
};

struct Step {
  size_t first = 0, count = 0;
  bool one_by_one = false;
};

// Cuts [first, n) into random parts. The last up to kLastRows tokens stand alone as a step of their
// own, so their logits can be asked for.
std::vector<Step> RandomSteps(size_t first, size_t n, Random& random) {
  const size_t n_last = std::min<size_t>(random.Between(1, kLastRows), n - first);
  const size_t end = n - n_last;
  std::vector<size_t> cuts = {first, end};
  for (uint64_t i = random.Between(0, 4); i > 0; --i) cuts.push_back(random.Between(first, end));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Step> steps;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    size_t at = cuts[i];
    if (random.Chance(1, 2)) {
      const size_t n_single = std::min<size_t>(random.Between(1, kMaxSingles), cuts[i + 1] - at);
      if (n_single > 0) steps.push_back({at, n_single, true});
      at += n_single;
    }
    if (at < cuts[i + 1]) steps.push_back({at, cuts[i + 1] - at, false});
  }
  steps.push_back({end, n_last, random.Chance(1, 2)});
  return steps;
}

// Parts of one quantum, two, three ...: each small batch that padding can lead to, once, and with
// it each kernel that is chosen by the number of rows. The last tokens alone.
std::vector<Step> LadderSteps(size_t n, size_t quantum) {
  const size_t end = n - kLastRows;
  std::vector<Step> steps;
  size_t at = 0;
  for (size_t size = quantum; at < end; size += quantum) {
    steps.push_back({at, std::min(size, end - at), false});
    at += steps.back().count;
  }
  steps.push_back({end, kLastRows, true});
  return steps;
}

// What happens around the rows of a trial.
struct Disturbance {
  Random* random = nullptr;  // null: nothing does
  uint32_t n_threads = 0;    // as resolved by the context
};

Status Disturb(Context& context, const Disturbance& disturbance) {
  if (disturbance.random == nullptr) return Status::Ok();
  Random& random = *disturbance.random;
  context.SetPaddingSeed(random.Next());
  const bool several = std::thread::hardware_concurrency() > 1;
  KVG_RETURN(context.SetThreads(several ? static_cast<uint32_t>(random.Between(1, 2)) : 1));
  if (random.Chance(1, 2)) {
    KVG_RETURN(context.RunUnrelatedTraffic(random.Next(), random.Between(1, kTrafficTokens)));
  }
  return Status::Ok();
}

Status DecodeStep(Context& context, Tokens tokens, const Step& step, bool is_last, Outcome* out) {
  const size_t size = step.one_by_one ? 1 : step.count;
  Logits logits;
  for (size_t i = 0; i < step.count; i += size) {
    const size_t n_logits = is_last ? size : 0;
    KVG_RETURN(context.Decode(tokens.subspan(step.first + i, size), Schedule::kExact, n_logits,
                              is_last ? &logits : nullptr));
    if (is_last) {
      out->logits.insert(out->logits.end(), logits.values.begin(), logits.values.end());
      out->n_rows += n_logits;
    }
  }
  return Status::Ok();
}

// Decodes the steps on top of what the context holds, and takes the state.
Result<Outcome> RunSteps(Context& context, Tokens tokens, const std::vector<Step>& steps,
                         const Disturbance& disturbance) {
  Outcome out;
  Status status;
  for (size_t i = 0; i < steps.size() && status.ok(); ++i) {
    status = Disturb(context, disturbance);
    if (status.ok()) {
      status = DecodeStep(context, tokens, steps[i], i + 1 == steps.size(), &out);
    }
  }
  context.SetPaddingSeed(std::nullopt);
  KVG_RETURN(context.SetThreads(disturbance.n_threads));
  KVG_RETURN(status);
  KVG_ASSIGN(out.image, TakeImage(context));
  return out;
}

// Compares with the cold decode, which has kLastRows rows of logits.
bool Compare(const Outcome& cold, const Outcome& other, double* max_abs_diff) {
  const size_t n_vocab = cold.logits.size() / cold.n_rows;
  const float* rows = cold.logits.data() + (cold.n_rows - other.n_rows) * n_vocab;
  for (size_t i = 0; i < other.logits.size(); ++i) {
    *max_abs_diff = std::max(*max_abs_diff, std::fabs(double{rows[i]} - double{other.logits[i]}));
  }
  return cold.image == other.image &&
         std::memcmp(rows, other.logits.data(), other.logits.size() * sizeof(float)) == 0;
}

class TrialRun {
 public:
  TrialRun(engine::Model& model, Tokens tokens, const DoctorOptions& options,
           const engine::ContextOptions& context_options, const std::function<bool()>& on_step)
      : model_(model),
        tokens_(tokens),
        options_(options),
        context_options_(context_options),
        on_step_(on_step) {}

  // Errors of the engine end in trial.error; only kCancelled is returned.
  Status Run(Trial* trial) {
    const Status status = RunAll(trial);
    if (status.code() == Code::kCancelled) return status;
    first_error_ = status;
    if (!status.ok()) trial->error = status.message();
    return Status::Ok();
  }
  const Status& first_error() const { return first_error_; }

 private:
  Status RunAll(Trial* trial) {
    KVG_ASSIGN(context_, model_.NewContext(context_options_));
    n_threads_ = context_->options().n_threads;
    const auto start = Clock::now();
    const size_t n = tokens_.size();
    KVG_ASSIGN(const Outcome cold, Cold());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    trial->prefill_tokens_per_s = seconds > 0 ? static_cast<double>(n) / seconds : 0;
    KVG_RETURN(Step());

    Random random(options_.seed);
    for (uint32_t i = 0; i < options_.n_splits; ++i) {
      KVG_ASSIGN(const Outcome split, Split(i, random));
      Count(Compare(cold, split, &trial->max_abs_logit_diff), trial);
      KVG_RETURN(Step());
      if (trial->identical < trial->splits && !options_.exhaustive) return Status::Ok();
    }
    KVG_ASSIGN(const Outcome restored, RestoreElsewhere(random));
    trial->restore_tried = true;
    trial->restore_identical = Compare(cold, restored, &trial->max_abs_logit_diff);
    Count(trial->restore_identical, trial);
    return Step();
  }

  static void Count(bool identical, Trial* trial) {
    ++trial->splits;
    trial->identical += identical ? 1 : 0;
  }

  Status Step() const {
    if (on_step_()) return Status::Ok();
    return Status(Code::kCancelled, "self-test: interrupted");
  }

  Disturbance Quiet() const { return {nullptr, n_threads_}; }

  // One decode of everything, nothing else in the batches but constant padding.
  Result<Outcome> Cold() {
    Logits logits;
    KVG_RETURN(context_->Decode(tokens_, Schedule::kExact, kLastRows, &logits));
    Outcome out;
    out.logits = std::move(logits.values);
    out.n_rows = kLastRows;
    KVG_ASSIGN(out.image, TakeImage(*context_));
    return out;
  }

  Result<Outcome> Split(uint32_t index, Random& random) {
    KVG_RETURN(context_->Clear());
    const auto steps = index == 0 ? LadderSteps(tokens_.size(), context_options_.row_quantum)
                                  : RandomSteps(0, tokens_.size(), random);
    return RunSteps(*context_, tokens_, steps, {&random, n_threads_});
  }

  // A prefix computed here, its image loaded into a new context, the rest decoded there.
  Result<Outcome> RestoreElsewhere(Random& random) {
    const size_t n = tokens_.size();
    const size_t alignment = model_.info().state_alignment;
    const size_t cut = random.Between(n / 2, n - kLastRows) / alignment * alignment;
    KVG_RETURN(context_->Clear());
    ImageBuffer image;
    if (cut > 0) {
      KVG_RETURN(context_->Decode(tokens_.first(cut), Schedule::kExact, 0, nullptr));
      KVG_ASSIGN(image, TakeImage(*context_));
    }
    KVG_ASSIGN(const std::unique_ptr<Context> other, model_.NewContext(context_options_));
    if (cut > 0) KVG_RETURN(other->LoadImage(image, static_cast<Pos>(cut)));
    return RunSteps(*other, tokens_, RandomSteps(cut, n, random), Quiet());
  }

  engine::Model& model_;
  const Tokens tokens_;
  const DoctorOptions& options_;
  const engine::ContextOptions context_options_;
  const std::function<bool()>& on_step_;
  std::unique_ptr<Context> context_;
  uint32_t n_threads_ = 0;
  Status first_error_;
};

Result<std::vector<Token>> TrialTokens(const engine::Model& model, uint32_t n_tokens) {
  std::string text;
  for (const SampleText& sample : SampleTexts()) text += std::string(sample.text) + "\n";
  KVG_ASSIGN(std::vector<Token> tokens, model.Tokenize(text, true, false));
  size_t n = std::max<size_t>(n_tokens, kMinTokens);
  const uint32_t n_ctx_train = model.info().n_ctx_train;
  if (n_ctx_train > 0) n = std::min<size_t>(n, n_ctx_train);
  if (tokens.size() < kMinTokens || n < kMinTokens) {
    return Status(Code::kUnsupported, "self-test: this model takes no text of " +
                                          std::to_string(kMinTokens) + " tokens");
  }
  tokens.resize(std::min(n, tokens.size()));
  return tokens;
}

std::vector<engine::ContextOptions> Configurations(const DoctorOptions& options, size_t n_tokens) {
  std::vector<Attention> modes = {options.context.attention};
  if (options.context.attention == Attention::kAuto) modes = {Attention::kOff, Attention::kOn};
  std::vector<engine::ContextOptions> out;
  for (const uint32_t quantum : options.quanta) {
    if (quantum == 0 || options.context.n_ubatch % quantum != 0) continue;
    for (const Attention mode : modes) {
      engine::ContextOptions& o = out.emplace_back(options.context);
      o.attention = mode;
      o.row_quantum = quantum;
      o.n_ctx = static_cast<uint32_t>(n_tokens) + 64;
      o.embeddings = false;
    }
  }
  return out;
}

}  // namespace

Result<ExactProfile> RunDoctor(engine::Model& model, const DoctorOptions& options,
                               const engine::Progress& progress) {
  KVG_ASSIGN(const std::vector<Token> tokens, TrialTokens(model, options.n_tokens));
  const auto configurations = Configurations(options, tokens.size());
  if (configurations.empty()) {
    return Status(Code::kInvalidArgument, "self-test: no row quantum to try divides n_ubatch " +
                                              std::to_string(options.context.n_ubatch) +
                                              "; use a multiple of 64");
  }
  const size_t steps_each = size_t{options.n_splits} + 2;  // the cold decode and the restore
  const size_t total = configurations.size() * steps_each;
  size_t done = 0;
  const std::function<bool()> on_step = [&] {
    ++done;
    return !progress || progress(done, total);
  };

  ExactProfile profile;
  profile.n_tokens = static_cast<uint32_t>(tokens.size());
  profile.created = UtcNow();
  Status first_error;
  bool any_ran = false;
  for (size_t i = 0; i < configurations.size(); ++i) {
    const engine::ContextOptions& o = configurations[i];
    Trial trial;
    trial.attention = o.attention == Attention::kOn ? "flash" : "plain";
    trial.row_quantum = o.row_quantum;
    TrialRun run(model, tokens, options, o, on_step);
    KVG_RETURN(run.Run(&trial));
    done = (i + 1) * steps_each;
    any_ran = any_ran || trial.error.empty();
    if (first_error.ok()) first_error = run.first_error();
    const bool holds = trial.error.empty() && trial.splits > 0 && trial.identical == trial.splits;
    profile.trials.push_back(std::move(trial));
    if (holds && !profile.holds) {
      profile.holds = true;
      profile.attention = o.attention;
      profile.row_quantum = o.row_quantum;
    }
    if (profile.holds && !options.exhaustive) break;
  }
  if (!any_ran) return first_error.Annotate("self-test");
  if (progress && !progress(total, total)) {
    return Status(Code::kCancelled, "self-test: interrupted");
  }
  return profile;
}

}  // namespace kvgraft::session
