#include <algorithm>

#include "kvgraft/engine_llama/block_context_internal.h"
#include "kvgraft/engine_llama/context_internal.h"

namespace kvgraft::engine_llama {

using engine::ContextOptions;
using engine::Logits;
using engine::Pos;
using engine::Progress;
using engine::Schedule;
using engine::Token;

LlamaContext::LlamaContext(std::shared_ptr<ModelState> state, ContextOptions options,
                           ContextPtr context)
    : state_(std::move(state)),
      options_(std::move(options)),
      context_(std::move(context)),
      memory_(llama_get_memory(context_.get())),
      batch_(options_.n_ubatch),
      identity_(BuildIdentity(*state_, options_, context_.get())) {
  llama_set_abort_callback(context_.get(), OnAbortCheck, this);
}

Status LlamaContext::StartAt(Pos first) {
  if (first < 0) {
    return Status(Code::kInvalidArgument, "sequence from position " + std::to_string(first));
  }
  llama_memory_clear(memory_, false);
  first_pos_ = n_past_ = first;
  return Status::Ok();
}

Status LlamaContext::SetThreads(uint32_t n_threads) {
  if (n_threads == 0) return Status(Code::kInvalidArgument, "threads: 0, expected 1 or more");
  options_.n_threads = n_threads;
  const auto n = static_cast<int32_t>(n_threads);
  llama_set_n_threads(context_.get(), n, n);
  return Status::Ok();
}

LlamaContext::Polling::Polling(LlamaContext* context, const Progress& progress, size_t total)
    : context_(context) {
  context_->progress_ = &progress;
  context_->progress_total_ = total;
  context_->last_poll_ = std::chrono::steady_clock::now();
}

LlamaContext::Polling::~Polling() { context_->progress_ = nullptr; }

Status LlamaContext::Polling::At(size_t done) {
  context_->progress_done_ = done;
  const Progress& progress = *context_->progress_;
  if (!progress || progress(done, context_->progress_total_) || done == context_->progress_total_) {
    return Status::Ok();
  }
  return Status(Code::kCancelled, "decoding: interrupted");
}

bool LlamaContext::ShouldAbort() {
  if (progress_ == nullptr || !*progress_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_poll_ < std::chrono::milliseconds(100)) return false;
  last_poll_ = now;
  return !(*progress_)(progress_done_, progress_total_);
}

Token LlamaContext::PaddingToken(uint32_t i) {
  if (!padding_) return static_cast<Token>(i % 2);
  return static_cast<Token>(padding_->Next() % state_->info.n_vocab);
}

Status LlamaContext::RunBatch() {
  TakeErrorLog();
  int32_t failed = 0;
  std::string what;
  try {
    failed = llama_decode(context_.get(), batch_.get());
  } catch (const std::exception& e) {
    failed = -1;
    what = e.what();
  }
  llama_memory_seq_rm(memory_, kScratch, -1, -1);
  if (failed == 0) return Status::Ok();
  llama_memory_seq_rm(memory_, kLive, n_past_, -1);
  if (failed == 2) return Status(Code::kCancelled, "decoding: interrupted");
  if (failed == 1) {
    return Status(Code::kExhausted, "decoding: no free cells for " +
                                        std::to_string(batch_.get().n_tokens) +
                                        " rows at position " + std::to_string(n_past_));
  }
  if (what.empty()) what = TakeErrorLog();
  return Status(Code::kInternal, "decoding failed in libllama (" + std::to_string(failed) + ")" +
                                     (what.empty() ? "" : ": " + what));
}

Status LlamaContext::DecodeChunk(std::span<const Token> tokens, size_t first_output,
                                 Schedule schedule) {
  batch_.Clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch_.Add(tokens[i], n_past_ + static_cast<Pos>(i), kLive, i >= first_output);
  }
  if (schedule == Schedule::kExact) {
    const uint32_t q = options_.row_quantum;
    const auto rest = static_cast<uint32_t>(tokens.size() % q);
    for (uint32_t i = 0; rest != 0 && i < q - rest; ++i) {
      batch_.Add(PaddingToken(i), static_cast<Pos>(i), kScratch, false);
    }
    // The last layer and the output head run on the rows with outputs alone, so their number
    // decides on kernels like the number of rows does (seen with F32 weights: 1 row and 8 differ).
    if (first_output < tokens.size()) batch_.PadOutputs(q);
  }
  KVG_RETURN(RunBatch());
  n_past_ += static_cast<Pos>(tokens.size());
  return Status::Ok();
}

Status LlamaContext::CheckDecode(std::span<const Token> tokens, size_t n_logits,
                                 Logits* logits) const {
  const auto held = static_cast<uint64_t>(n_past_ - first_pos_);
  const uint64_t need = held + tokens.size();
  if (need > options_.n_ctx) {
    return Status(Code::kExhausted,
                  "context holds " + std::to_string(options_.n_ctx) + " tokens, " +
                      std::to_string(need) + " are needed (" + std::to_string(held) + " there, " +
                      std::to_string(tokens.size()) + " more); give a larger context, -c " +
                      std::to_string(need));
  }
  for (Token t : tokens) {
    if (t < 0 || static_cast<uint32_t>(t) >= state_->info.n_vocab) {
      return Status(Code::kInvalidArgument, "token " + std::to_string(t) + ": the model has " +
                                                std::to_string(state_->info.n_vocab) + " tokens");
    }
  }
  if (n_logits > tokens.size() || (n_logits > 0 && logits == nullptr)) {
    return Status(Code::kInvalidArgument, "logits of " + std::to_string(n_logits) + " rows from " +
                                              std::to_string(tokens.size()) + " tokens");
  }
  if (logits != nullptr) {
    logits->rows = n_logits;
    logits->n_vocab = state_->info.n_vocab;
    logits->values.resize(n_logits * logits->n_vocab);
  }
  return Status::Ok();
}

Status LlamaContext::CopyLogits(size_t row, size_t i, Logits* logits) const {
  const float* values = llama_get_logits_ith(context_.get(), static_cast<int32_t>(row));
  if (values == nullptr) {
    return Status(Code::kInternal, "libllama gave no logits for row " + std::to_string(row));
  }
  std::copy(values, values + logits->n_vocab, logits->values.data() + i * logits->n_vocab);
  return Status::Ok();
}

Status LlamaContext::Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits,
                            Logits* logits, const Progress& progress) {
  KVG_RETURN(CheckDecode(tokens, n_logits, logits));
  Polling polling(this, progress, tokens.size());
  const size_t zone = tokens.size() - n_logits;  // rows from here on have outputs
  for (size_t done = 0; done < tokens.size();) {
    KVG_RETURN(polling.At(done));
    size_t end = std::min(tokens.size(), done + options_.n_ubatch);
    end = std::min(end, std::max(done, zone) + kMaxOutputs);
    const size_t first_output = std::max(done, zone) - done;
    KVG_RETURN(DecodeChunk(tokens.subspan(done, end - done), first_output, schedule));
    for (size_t i = std::max(done, zone); i < end; ++i) {
      KVG_RETURN(CopyLogits(i - done, i - zone, logits));
    }
    done = end;
  }
  return polling.At(tokens.size());
}

Status LlamaContext::CheckCut(Pos n) const {
  if (n >= first_pos_ && n <= n_past_) return Status::Ok();
  return Status(Code::kInvalidArgument,
                "cut at " + std::to_string(n) + ": the sequence holds positions " +
                    std::to_string(first_pos_) + " to " + std::to_string(n_past_));
}

Status LlamaContext::Truncate(Pos n) {
  KVG_RETURN(CheckCut(n));
  if (n == n_past_) return Status::Ok();
  if (n == first_pos_) return StartAt(n);
  const auto window = static_cast<Pos>(state_->info.sliding_window);
  if (window > 0) {
    // A restored state holds the window before its end only.
    const Pos first = llama_memory_seq_pos_min(memory_, kLive);
    if (first > std::max(first_pos_, n - window + 1)) {
      return Status(Code::kUnsupported,
                    "cut at " + std::to_string(n) +
                        ": the sliding-window layers hold nothing before " + std::to_string(first) +
                        ", not reusable before position " + std::to_string(first + window - 1));
    }
  }
  if (!llama_memory_seq_rm(memory_, kLive, n, -1)) {
    return Status(Code::kUnsupported, "this model's state cannot be cut at " + std::to_string(n));
  }
  n_past_ = n;
  return Status::Ok();
}

Result<std::unique_ptr<engine::Context>> NewLlamaContext(std::shared_ptr<ModelState> state,
                                                         const ContextOptions& requested) {
  ContextOptions options = requested;
  if (state->options.vocabulary_only || !state->info.has_decoder) {
    return Status(Code::kUnsupported, "model " + state->info.path + ": " +
                                          (state->options.vocabulary_only
                                               ? "only its vocabulary was loaded"
                                               : "has no decoder; it makes embeddings only"));
  }
  KVG_RETURN(ResolveOptions(state->info, &options));
  TakeErrorLog();
  ContextPtr context;
  try {
    context.reset(llama_init_from_model(state->model.get(), MakeParams(options)));
  } catch (const std::exception& e) {
    return Status(Code::kExhausted, std::string("context could not be made: ") + e.what());
  }
  if (!context) {
    return Status(Code::kExhausted, "context of " + std::to_string(options.n_ctx) +
                                        " tokens could not be made: " + TakeErrorLog());
  }
  std::vector<llama_adapter_lora*> adapters;
  std::vector<float> scales;
  for (const LoadedAdapter& a : state->adapters) {
    adapters.push_back(a.handle.get());
    scales.push_back(a.scale);
  }
  if (!adapters.empty() && llama_set_adapters_lora(context.get(), adapters.data(), adapters.size(),
                                                   scales.data()) != 0) {
    return Status(Code::kInternal, "adapters could not be applied: " + TakeErrorLog());
  }
  std::unique_ptr<LlamaContext> out;
  if (state->info.recurrent) {
    out = std::make_unique<BlockContext>(state, options, std::move(context));
  } else {
    out = std::make_unique<LlamaContext>(state, options, std::move(context));
  }
  KVG_RETURN(out->Warm().Annotate("first batch"));
  return std::unique_ptr<engine::Context>(std::move(out));
}

}  // namespace kvgraft::engine_llama
