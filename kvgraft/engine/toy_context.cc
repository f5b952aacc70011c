#include "kvgraft/engine/toy_context.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <thread>

#include "kvgraft/core/hash.h"

namespace kvgraft::engine::toy {
namespace {

constexpr uint32_t kMaxContext = 1u << 20;
constexpr uint32_t kMaxThreads = 1024;
constexpr size_t kStateAlignment = 64;
constexpr std::array<std::string_view, 4> kTypes = {"f32", "f16", "bf16", "q8_0"};

Status Invalid(const std::string& message) {
  return Status(Code::kInvalidArgument, "toy context: " + message);
}

Status CheckType(std::string_view option, std::string_view type) {
  if (std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end()) return Status::Ok();
  return Invalid(std::string(option) + " is '" + std::string(type) +
                 "', expected f32, f16, bf16 or q8_0");
}

StateIdentity MakeIdentity(const Net& net, const ToyOptions& toy, const ContextOptions& options) {
  StateIdentity id;
  id.SetCompat("model.sha256", net.sha256());
  id.SetCompat("model.arch", "toy");
  id.SetCompat("model.n_layer", std::to_string(kLayers));
  id.SetCompat("model.n_embd", std::to_string(kEmbd));
  id.SetCompat("model.n_head", std::to_string(kHeads));
  id.SetCompat("model.n_head_kv", std::to_string(kKvHeads));
  id.SetCompat("model.head_dim", std::to_string(kHeadDim));
  id.SetCompat("model.n_vocab", std::to_string(kVocab));
  id.SetCompat("cache.type_k", options.type_k);
  id.SetCompat("cache.type_v", options.type_v);
  id.SetCompat("cache.attention", options.attention == Attention::kOn ? "flash" : "plain");
  id.SetCompat("cache.v_layout", options.attention == Attention::kOn ? "rows" : "columns");
  id.SetCompat("rope.freq_base", CanonicalFloat(options.rope_freq_base));
  id.SetCompat("rope.freq_scale", CanonicalFloat(options.rope_freq_scale));
  id.SetCompat("rope.scaling", "none");
  id.SetCompat("tokenizer.sha256", Sha256Hex(std::string_view(toy.tokenizer)));
  id.SetCompat("swa.window", std::to_string(toy.sliding_window));
  id.SetCompat("swa.full", toy.sliding_window == 0 ? "n/a" : options.swa_full ? "true" : "false");
  id.SetCompat("tenant", "");
  id.SetCompat("state.format", "toy-1");
  id.SetBuild("engine.build", toy.build);
  id.SetBuild("cpu.features", "toy");
  return id;
}

Token RandomByte(uint64_t seed, uint64_t index) {
  return static_cast<Token>(Mix(seed ^ Mix(index)) % 256);
}

}  // namespace

Result<ContextOptions> ResolveOptions(ContextOptions o, uint32_t n_ctx_train) {
  if (o.n_ctx == 0) o.n_ctx = n_ctx_train;
  if (o.n_threads == 0)
    o.n_threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  if (o.attention == Attention::kAuto) o.attention = Attention::kOff;
  if (o.rope_freq_base == 0) o.rope_freq_base = Rope{}.freq_base;
  if (o.rope_freq_scale == 0) o.rope_freq_scale = Rope{}.freq_scale;
  if (o.n_ctx > kMaxContext)
    return Invalid("n_ctx is " + std::to_string(o.n_ctx) + ", the largest is 1048576");
  if (o.n_threads > kMaxThreads)
    return Invalid("n_threads is " + std::to_string(o.n_threads) + ", the most are 1024");
  if (o.row_quantum == 0) return Invalid("row_quantum is 0, expected 1 (no padding) or more");
  if (o.n_ubatch == 0 || o.n_ubatch % o.row_quantum != 0)
    return Invalid("n_ubatch is " + std::to_string(o.n_ubatch) +
                   ", expected a multiple of row_quantum (" + std::to_string(o.row_quantum) + ")");
  KVG_RETURN(CheckType("type_k", o.type_k));
  KVG_RETURN(CheckType("type_v", o.type_v));
  if (o.type_v == "q8_0" && o.attention == Attention::kOff)
    return Invalid("type_v q8_0 needs attention on: columns of V cannot be quantised");
  if (!std::isfinite(o.rope_freq_base) || o.rope_freq_base <= 0)
    return Invalid("rope_freq_base must be a positive number, or 0 for the model's");
  if (!std::isfinite(o.rope_freq_scale) || o.rope_freq_scale <= 0)
    return Invalid("rope_freq_scale must be a positive number, or 0 for the model's");
  return o;
}

ToyContext::ToyContext(std::shared_ptr<const Net> net, const ToyOptions& toy,
                       const ContextOptions& options)
    : net_(std::move(net)),
      toy_(toy),
      options_(options),
      identity_(MakeIdentity(*net_, toy, options)),
      streams_(MakeLayout({.pairing = RopePairing::kHalfSplit,
                           .n_rot = kHeadDim,
                           .freq_base = options.rope_freq_base,
                           .freq_scale = options.rope_freq_scale},
                          layout())) {}

Status ToyContext::StartAt(Pos first) {
  if (first < 0 || first > static_cast<Pos>(kMaxContext))
    return Invalid("a sequence from position " + std::to_string(first) + ", expected 0 .. 1048576");
  first_pos_ = n_past_ = first;
  window_first_ = first;
  cells_moved_ = false;
  return Status::Ok();
}

Status ToyContext::Truncate(Pos n) {
  if (n < first_pos_ || n > n_past_)
    return Invalid("cannot cut at position " + std::to_string(n) + ", the sequence holds " +
                   std::to_string(first_pos_) + " to " + std::to_string(n_past_));
  if (n == first_pos_) return StartAt(n);
  if (std::max(first_pos_, n + 1 - static_cast<Pos>(toy_.sliding_window)) < window_first_)
    return Status(Code::kUnsupported,
                  "toy context: cannot cut at position " + std::to_string(n) +
                      ", a restored sliding window holds nothing before position " +
                      std::to_string(window_first_));
  n_past_ = n;
  return Status::Ok();
}

Kernel ToyContext::KernelFor(size_t n_rows) const {
  // Any other rotation than 0 stands for another kernel; 1 .. 29 by the number of rows.
  Kernel kernel{.online_softmax = options_.attention == Attention::kOn};
  const uint32_t quantum = toy_.kernel_quantum;
  if (quantum == 0 || n_rows % quantum != 0) {
    size_t variant = n_rows;
    if (n_rows == 1 && kernel.online_softmax) variant += options_.n_threads;
    kernel.rotation = static_cast<uint32_t>(1 + variant % 29);
  }
  if (cells_moved_) kernel.rotation = kernel.rotation == 0 ? 30 : 31;
  return kernel;
}

Status ToyContext::CheckDecode(std::span<const Token> tokens, size_t n_logits,
                               const Logits* logits) const {
  if (options_.embeddings)
    return Status(Code::kUnsupported, "toy context: made for embeddings, it does not decode");
  if (n_logits > tokens.size() || (n_logits > 0 && logits == nullptr))
    return Invalid("logits of " + std::to_string(n_logits) + " rows asked for, from " +
                   std::to_string(tokens.size()) + " tokens");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= static_cast<Token>(kVocab))
      return Invalid("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                     ", the vocabulary has 0 .. " + std::to_string(kVocab - 1));
  }
  const size_t room = options_.n_ctx - n_held();
  if (tokens.size() > room)
    return Status(Code::kExhausted, "toy context: " + std::to_string(tokens.size()) +
                                        " tokens do not fit, " + std::to_string(room) + " of " +
                                        std::to_string(options_.n_ctx) +
                                        " positions are free; use a larger context");
  return Status::Ok();
}

Status ToyContext::Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits,
                          Logits* logits, const Progress& progress) {
  KVG_RETURN(CheckDecode(tokens, n_logits, logits));
  if (logits != nullptr) {
    logits->rows = n_logits;
    logits->n_vocab = kVocab;
    logits->values.assign(n_logits * kVocab, 0.0f);
  }
  const size_t first_logit = tokens.size() - n_logits;
  for (size_t done = 0; done < tokens.size();) {
    const size_t n = std::min<size_t>(options_.n_ubatch, tokens.size() - done);
    if (toy_.fail_decode_after > 0 && n_decoded_ + n > toy_.fail_decode_after) {
      n_decoded_ = 0;
      return Status(Code::kInternal, "toy context: decoding failed after " +
                                         std::to_string(n_past_) + " tokens, as asked for");
    }
    const size_t q = schedule == Schedule::kExact ? options_.row_quantum : 1;
    const size_t end = done + n;
    const size_t n_rows_out = end > first_logit ? end - std::max(done, first_logit) : 0;
    float* out = n_rows_out == 0
                     ? nullptr
                     : logits->values.data() + (end - n_rows_out - first_logit) * kVocab;
    DecodeBatch(tokens.subspan(done, n), (n + q - 1) / q * q - n, n_rows_out, out);
    done = end;
    // Nothing is left to interrupt after the last batch.
    if (progress && !progress(done, tokens.size()) && done < tokens.size())
      return Status(Code::kCancelled, "toy context: interrupted after " + std::to_string(done) +
                                          " of " + std::to_string(tokens.size()) + " tokens");
  }
  return Status::Ok();
}

void ToyContext::DecodeBatch(std::span<const Token> tokens, size_t n_padding, size_t n_logits,
                             float* out) {
  const Kernel kernel = KernelFor(tokens.size() + n_padding);
  std::array<float, kEmbd> hidden;
  for (size_t i = 0; i < tokens.size(); ++i) {
    net_->Forward(tokens[i], n_past_, first_pos_, kernel, rope(), toy_.sliding_window, live_,
                  hidden.data());
    ++n_past_;
    if (i + n_logits >= tokens.size()) {
      net_->Logits(hidden.data(), kernel, out);
      out += kVocab;
    }
  }
  n_decoded_ += tokens.size();
  std::optional<uint64_t> seed;
  if (padding_seed_) seed = Mix(*padding_seed_ + ++n_padded_);
  DecodeScratch(n_padding, seed, kernel);
}

void ToyContext::DecodeScratch(size_t n_rows, std::optional<uint64_t> seed, const Kernel& kernel) {
  std::array<float, kEmbd> hidden;
  for (size_t i = 0; i < n_rows; ++i) {
    const Token token = seed ? RandomByte(*seed, i) : 0;
    net_->Forward(token, static_cast<Pos>(i), 0, kernel, rope(), toy_.sliding_window, scratch_,
                  hidden.data());
  }
}

Result<size_t> ToyContext::ImageBytes() { return toy::ImageBytes(n_held()); }

Status ToyContext::SaveImage(MutableByteSpan out) {
  const size_t want = toy::ImageBytes(n_held());
  if (out.size() != want)
    return Invalid("the image takes " + std::to_string(want) + " bytes, the buffer has " +
                   std::to_string(out.size()));
  WriteImage(live_, static_cast<size_t>(first_pos_), n_held(), layout(), out);
  return Status::Ok();
}

Status ToyContext::CheckImageAt(ByteSpan image, Pos first, Pos end) const {
  if (first < 0 || end < first || first > static_cast<Pos>(kMaxContext))
    return Invalid("an image of positions " + std::to_string(first) + " to " + std::to_string(end));
  const auto n = static_cast<size_t>(end - first);
  KVG_RETURN(toy::CheckImage(image, static_cast<size_t>(first), n, layout()));
  if (n > options_.n_ctx)
    return Status(Code::kExhausted, "toy context: the image holds " + std::to_string(n) +
                                        " tokens, the context " + std::to_string(options_.n_ctx) +
                                        "; use a larger context");
  return Status::Ok();
}

Status ToyContext::LoadImageAt(ByteSpan image, Pos first, Pos end) {
  KVG_RETURN(CheckImageAt(image, first, end));
  KVG_RETURN(Clear());
  // As real engines do, some of it is written before a failure.
  const auto n = static_cast<size_t>(end - first);
  ReadImage(image, static_cast<size_t>(first), n, layout(), live_);
  if (toy_.fail_load_image)
    return Status(Code::kInternal, "toy context: the engine refused the image, as asked for");
  first_pos_ = window_first_ = first;
  n_past_ = end;
  if (toy_.sliding_window > 0)
    window_first_ = std::max(first, end - static_cast<Pos>(toy_.sliding_window));
  cells_moved_ =
      toy_.sliding_window > 0 && n > 0 && (!options_.swa_full || n % kStateAlignment != 0);
  return Status::Ok();
}

Status ToyContext::ShiftByEngine(Pos delta) {
  const int64_t first = int64_t{first_pos_} + delta, end = int64_t{n_past_} + delta;
  if (first < 0 || end > kMaxContext)
    return Invalid("a shift of positions " + std::to_string(first_pos_) + " to " +
                   std::to_string(n_past_) + " by " + std::to_string(delta));
  Cells moved;
  moved.Reserve(static_cast<size_t>(end));
  for (uint32_t l = 0; l < kLayers; ++l) {
    for (Pos pos = first_pos_; pos < n_past_; ++pos) {
      const size_t from = static_cast<size_t>(pos) * kKvDim;
      const size_t to = static_cast<size_t>(pos + delta) * kKvDim;
      std::copy_n(live_.layers[l].v.data() + from, kKvDim, moved.layers[l].v.data() + to);
      std::copy_n(live_.layers[l].k.data() + from, kKvDim, moved.layers[l].k.data() + to);
      const RopeTurn turn = RopeTurn::Between(streams_.ropes[0], pos, pos + delta);
      for (uint32_t h = 0; h < kKvHeads; ++h)
        turn.Apply(streams_.ropes[0], {moved.layers[l].k.data() + to + h * kHeadDim, kHeadDim});
    }
  }
  live_ = std::move(moved);
  first_pos_ += delta;
  n_past_ += delta;
  window_first_ += delta;
  return Status::Ok();
}

Status ToyContext::RunUnrelatedTraffic(uint64_t seed, size_t n_tokens) {
  for (size_t done = 0; done < n_tokens;) {
    const size_t n = std::min<size_t>(options_.n_ubatch, n_tokens - done);
    DecodeScratch(n, Mix(seed + done), KernelFor(n));
    done += n;
  }
  // Free cells held other users' rows: leave what they leave, so that a leak would be seen.
  const size_t dirty =
      static_cast<size_t>(n_past_) + std::min<size_t>(n_tokens, options_.n_ctx - n_held());
  live_.Reserve(dirty);
  for (Cells::Layer& layer : live_.layers) {
    for (size_t i = static_cast<size_t>(n_past_) * kKvDim; i < dirty * kKvDim; ++i)
      layer.k[i] = layer.v[i] = static_cast<float>(RandomByte(seed, i));
  }
  return Status::Ok();
}

Status ToyContext::SetThreads(uint32_t n_threads) {
  if (n_threads == 0 || n_threads > kMaxThreads)
    return Invalid("n_threads is " + std::to_string(n_threads) + ", expected 1 .. 1024");
  options_.n_threads = n_threads;
  return Status::Ok();
}

}  // namespace kvgraft::engine::toy
