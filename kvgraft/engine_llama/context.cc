// A libllama context that keeps one live sequence (id 0) and a scratch sequence (id 1) in one
// unified cache. The scratch rows pad batches to the row quantum; they are removed after each
// batch, so cell i always holds position i, and the live sequence never sees them.
#include <algorithm>
#include <chrono>

#include "kvgraft/core/random.h"
#include "kvgraft/engine_llama/internal.h"
#include "kvgraft/engine_llama/rope_probe_internal.h"

namespace kvgraft::engine_llama {
namespace {

using engine::Attention;
using engine::ContextOptions;
using engine::Logits;
using engine::Pos;
using engine::Progress;
using engine::Schedule;
using engine::Token;

constexpr llama_seq_id kLive = 0;
constexpr llama_seq_id kScratch = 1;

// Owns a llama_batch of fixed capacity.
class Batch {
 public:
  explicit Batch(uint32_t capacity)
      : batch_(llama_batch_init(static_cast<int32_t>(capacity), 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void Clear() { batch_.n_tokens = 0; }
  void Add(Token token, Pos pos, llama_seq_id seq, bool output) {
    const int32_t i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = pos;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = seq;
    batch_.logits[i] = output ? 1 : 0;
  }
  // Turns further rows, from the end, into outputs until their number is a multiple of `quantum`.
  void PadOutputs(uint32_t quantum) {
    uint32_t n = 0;
    for (int32_t i = 0; i < batch_.n_tokens; ++i) n += batch_.logits[i] != 0;
    for (int32_t i = batch_.n_tokens - 1; i >= 0 && n % quantum != 0; --i) {
      if (batch_.logits[i] == 0) batch_.logits[i] = 1, ++n;
    }
  }
  const llama_batch& get() const { return batch_; }

 private:
  llama_batch batch_;
};

class LlamaContext : public engine::Context {
 public:
  LlamaContext(std::shared_ptr<ModelState> state, ContextOptions options, ContextPtr context)
      : state_(std::move(state)),
        options_(std::move(options)),
        context_(std::move(context)),
        memory_(llama_get_memory(context_.get())),
        batch_(options_.n_ubatch),
        identity_(BuildIdentity(*state_, options_, context_.get())) {
    llama_set_abort_callback(context_.get(), OnAbortCheck, this);
  }

  // Runs one padded batch, learns the state layout from it, and empties the context again.
  Status Warm();

  const StateIdentity& identity() const override { return identity_; }
  const ContextOptions& options() const override { return options_; }
  uint32_t n_ctx() const override { return options_.n_ctx; }
  Pos n_past() const override { return n_past_; }
  Pos first_pos() const override { return first_pos_; }

  Status StartAt(Pos first) override {
    if (first < 0) {
      return Status(Code::kInvalidArgument, "sequence from position " + std::to_string(first));
    }
    llama_memory_clear(memory_, false);
    first_pos_ = n_past_ = first;
    return Status::Ok();
  }
  Status Truncate(Pos n) override;
  Status Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits, Logits* logits,
                const Progress& progress) override;
  Result<size_t> ImageBytes() override;
  Status SaveImage(MutableByteSpan out) override;
  Status CheckImageAt(ByteSpan image, Pos first, Pos end) const override;
  Status LoadImageAt(ByteSpan image, Pos first, Pos end) override;
  Result<const KvLayout*> Layout() override;
  Result<KvView> ViewImage(ByteSpan image) override {
    KVG_RETURN(Layout().status());
    return ViewPlanes(*planes_, image);
  }
  Result<MutableKvView> ViewImage(MutableByteSpan image) override {
    KVG_RETURN(Layout().status());
    return ViewPlanes(*planes_, image);
  }
  Result<std::vector<uint8_t>> FormatImage(
      const std::vector<std::vector<int32_t>>& positions) override {
    KVG_RETURN(Layout().status());
    return FormatPlanes(*planes_, positions);
  }
  Status StorePositions(MutableByteSpan image,
                        const std::vector<std::vector<int32_t>>& positions) override {
    KVG_RETURN(Layout().status());
    return engine_llama::StorePositions(*planes_, image, positions);
  }
  Status ShiftByEngine(Pos delta) override;
  Status RunUnrelatedTraffic(uint64_t seed, size_t n_tokens) override;
  void SetPaddingSeed(std::optional<uint64_t> seed) override {
    padding_ = seed ? std::optional<Random>(*seed) : std::nullopt;
  }
  Status SetThreads(uint32_t n_threads) override {
    if (n_threads == 0) return Status(Code::kInvalidArgument, "threads: 0, expected 1 or more");
    options_.n_threads = n_threads;
    const auto n = static_cast<int32_t>(n_threads);
    llama_set_n_threads(context_.get(), n, n);
    return Status::Ok();
  }

 private:
  static bool OnAbortCheck(void* self) { return static_cast<LlamaContext*>(self)->ShouldAbort(); }
  bool ShouldAbort();
  Status CheckTokens(std::span<const Token> tokens) const;
  // Decodes one physical batch of tokens[begin, end); outputs for rows from `first_output` on.
  Status DecodeChunk(std::span<const Token> tokens, size_t first_output, Schedule schedule);
  Status RunBatch();
  Token PaddingToken(uint32_t i);

  std::shared_ptr<ModelState> state_;
  ContextOptions options_;
  ContextPtr context_;
  llama_memory_t memory_;
  Batch batch_;
  StateIdentity identity_;
  std::optional<ImageLayout> layout_;
  Status layout_status_;
  std::optional<Planes> planes_;  // see Layout()
  Status planes_status_;
  Pos first_pos_ = 0, n_past_ = 0;
  std::optional<Random> padding_;  // unset: constant padding
  // Of the Decode that is running: polled from inside the engine, so that a batch of seconds can be
  // interrupted.
  const Progress* progress_ = nullptr;
  size_t progress_done_ = 0, progress_total_ = 0;
  std::chrono::steady_clock::time_point last_poll_;
};

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
  TakeLastLog();
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
  if (what.empty()) what = TakeLastLog();
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

Status LlamaContext::CheckTokens(std::span<const Token> tokens) const {
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
  return Status::Ok();
}

Status LlamaContext::Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits,
                            Logits* logits, const Progress& progress) {
  KVG_RETURN(CheckTokens(tokens));
  if (n_logits > tokens.size() || (n_logits > 0 && logits == nullptr)) {
    return Status(Code::kInvalidArgument, "logits of " + std::to_string(n_logits) + " rows from " +
                                              std::to_string(tokens.size()) + " tokens");
  }
  const size_t n_vocab = state_->info.n_vocab;
  if (logits != nullptr) {
    logits->rows = n_logits;
    logits->n_vocab = n_vocab;
    logits->values.resize(n_logits * n_vocab);
  }
  progress_ = &progress;
  progress_total_ = tokens.size();
  last_poll_ = std::chrono::steady_clock::now();
  Status status;
  const size_t zone = tokens.size() - n_logits;  // rows from here on have outputs
  for (size_t done = 0; done < tokens.size() && status.ok();) {
    progress_done_ = done;
    if (progress && !progress(done, tokens.size())) {
      status = Status(Code::kCancelled, "decoding: interrupted");
      break;
    }
    size_t end = std::min(tokens.size(), done + options_.n_ubatch);
    end = std::min(end, std::max(done, zone) + kMaxOutputs);
    const size_t first_output = std::max(done, zone) - done;
    status = DecodeChunk(tokens.subspan(done, end - done), first_output, schedule);
    for (size_t i = std::max(done, zone); status.ok() && i < end; ++i) {
      const float* row = llama_get_logits_ith(context_.get(), static_cast<int32_t>(i - done));
      if (row == nullptr) {
        status = Status(Code::kInternal, "libllama gave no logits for row " + std::to_string(i));
        break;
      }
      std::copy(row, row + n_vocab, logits->values.data() + (i - zone) * n_vocab);
    }
    if (status.ok()) done = end;
  }
  progress_ = nullptr;
  if (status.ok() && progress) progress(tokens.size(), tokens.size());
  return status;
}

Status LlamaContext::Truncate(Pos n) {
  if (n < first_pos_ || n > n_past_) {
    return Status(Code::kInvalidArgument,
                  "cut at " + std::to_string(n) + ": the sequence holds positions " +
                      std::to_string(first_pos_) + " to " + std::to_string(n_past_));
  }
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

Result<size_t> LlamaContext::ImageBytes() {
  KVG_RETURN(layout_status_);
  const size_t bytes = llama_state_seq_get_size(context_.get(), kLive);
  if (bytes == 0) return Status(Code::kInternal, "libllama gave no state size: " + TakeLastLog());
  return bytes;
}

Status LlamaContext::SaveImage(MutableByteSpan out) {
  KVG_ASSIGN(const size_t bytes, ImageBytes());
  if (out.size() != bytes) {
    return Status(Code::kInvalidArgument, "state image: buffer of " + std::to_string(out.size()) +
                                              " bytes, expected " + std::to_string(bytes));
  }
  const size_t written = llama_state_seq_get_data(context_.get(), out.data(), out.size(), kLive);
  if (written != bytes) {
    return Status(Code::kInternal, "libllama wrote " + std::to_string(written) + " of " +
                                       std::to_string(bytes) + " state bytes: " + TakeLastLog());
  }
  return Status::Ok();
}

Status LlamaContext::CheckImageAt(ByteSpan image, Pos first, Pos end) const {
  KVG_RETURN(layout_status_);
  if (end - first > static_cast<Pos>(options_.n_ctx)) {
    return Status(Code::kExhausted, "context holds " + std::to_string(options_.n_ctx) +
                                        " tokens, the state has " + std::to_string(end - first) +
                                        "; give a larger context, -c " +
                                        std::to_string(end - first));
  }
  return CheckImageBytes(image, *layout_, end, first);
}

Status LlamaContext::LoadImageAt(ByteSpan image, Pos first, Pos end) {
  KVG_RETURN(CheckImageAt(image, first, end));
  KVG_RETURN(Clear());
  TakeLastLog();
  const size_t read = llama_state_seq_set_data(context_.get(), image.data(), image.size(), kLive);
  if (read != image.size() || llama_memory_seq_pos_max(memory_, kLive) != end - 1) {
    llama_memory_clear(memory_, true);
    return Status(Code::kInternal, "libllama took " + std::to_string(read) + " of " +
                                       std::to_string(image.size()) +
                                       " state bytes; the sequence is empty now. " + TakeLastLog());
  }
  first_pos_ = first;
  n_past_ = end;
  return Status::Ok();
}

Result<const KvLayout*> LlamaContext::Layout() {
  KVG_RETURN(layout_status_);
  if (!planes_ && planes_status_.ok()) {
    const auto find = [this]() -> Result<Planes> {
      KVG_ASSIGN(const ModelGeometry geometry, ReadGeometry(*state_, options_));
      KVG_ASSIGN(Planes planes, MatchPlanes(*layout_, geometry, state_->info.architecture));
      KVG_RETURN(FindRopes(*state_, geometry, options_, &planes));
      return planes;
    };
    Result<Planes> planes = find();
    planes_status_ = planes.status();
    if (planes.ok()) planes_ = std::move(planes).value();
  }
  KVG_RETURN(planes_status_);
  return &planes_->layout;
}

Status LlamaContext::ShiftByEngine(Pos delta) {
  if (!llama_memory_can_shift(memory_)) {
    return Status(Code::kUnsupported,
                  "this engine cannot shift the keys of '" + state_->info.architecture + "'");
  }
  if (int64_t{first_pos_} + delta < 0) {
    return Status(Code::kInvalidArgument, "shift by " + std::to_string(delta) + " from position " +
                                              std::to_string(first_pos_));
  }
  llama_memory_seq_add(memory_, kLive, -1, -1, delta);  // carried out before the next batch
  first_pos_ += delta;
  n_past_ += delta;
  return Status::Ok();
}

Status LlamaContext::RunUnrelatedTraffic(uint64_t seed, size_t n_tokens) {
  const size_t room = options_.n_ctx - static_cast<size_t>(n_past_ - first_pos_) + kSpareCells -
                      options_.row_quantum;
  size_t left = std::min(n_tokens, room);
  Random random(seed);
  Pos pos = 0;
  while (left > 0) {
    const size_t rows = std::min<size_t>(left, options_.n_ubatch);
    batch_.Clear();
    for (size_t i = 0; i < rows; ++i) {
      batch_.Add(static_cast<Token>(random.Next() % state_->info.n_vocab), pos++, kScratch, false);
    }
    left -= rows;
    TakeLastLog();
    const int32_t failed = llama_decode(context_.get(), batch_.get());
    if (failed != 0) {
      llama_memory_seq_rm(memory_, kScratch, -1, -1);
      return Status(Code::kInternal, "scratch traffic failed in libllama: " + TakeLastLog());
    }
  }
  llama_memory_seq_rm(memory_, kScratch, -1, -1);
  return Status::Ok();
}

Status LlamaContext::Warm() {
  const Token token = 0;
  KVG_RETURN(Decode({&token, 1}, Schedule::kExact, 0, nullptr, {}));
  if (!state_->info.unsupported.empty()) {
    layout_status_ =
        Status(Code::kUnsupported, "the state of " + state_->info.path +
                                       " cannot be captured: " + state_->info.unsupported);
    return Clear();
  }
  KVG_ASSIGN(const size_t bytes, ImageBytes());
  std::vector<uint8_t> image(bytes);
  KVG_RETURN(SaveImage(image));
  Result<ImageLayout> layout = LearnLayout(image);
  if (layout.ok()) {
    layout_ = std::move(layout).value();
  } else {
    layout_status_ = layout.status();
  }
  return Clear();
}

}  // namespace

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
  TakeLastLog();
  ContextPtr context;
  try {
    context.reset(llama_init_from_model(state->model.get(), MakeParams(options)));
  } catch (const std::exception& e) {
    return Status(Code::kExhausted, std::string("context could not be made: ") + e.what());
  }
  if (!context) {
    return Status(Code::kExhausted, "context of " + std::to_string(options.n_ctx) +
                                        " tokens could not be made: " + TakeLastLog());
  }
  std::vector<llama_adapter_lora*> adapters;
  std::vector<float> scales;
  for (const LoadedAdapter& a : state->adapters) {
    adapters.push_back(a.handle.get());
    scales.push_back(a.scale);
  }
  if (!adapters.empty() && llama_set_adapters_lora(context.get(), adapters.data(), adapters.size(),
                                                   scales.data()) != 0) {
    return Status(Code::kInternal, "adapters could not be applied: " + TakeLastLog());
  }
  auto out = std::make_unique<LlamaContext>(state, options, std::move(context));
  KVG_RETURN(out->Warm().Annotate("first batch"));
  return std::unique_ptr<engine::Context>(std::move(out));
}

}  // namespace kvgraft::engine_llama
