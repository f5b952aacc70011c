#include "kvgraft/session/capture.h"

#include <bit>
#include <future>
#include <system_error>

#include "kvgraft/core/hash.h"
#include "kvgraft/core/stopwatch.h"
#include "kvgraft/core/utc.h"
#include "kvgraft/session/tail_loss.h"

namespace kvgraft::session {
namespace {

using engine::Schedule;
using engine::Token;

// SHA-256 over the floats as little-endian bytes.
std::string HashLogits(std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    return Sha256Hex(
        ByteSpan(reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()));
  } else {
    ByteWriter out;
    for (float v : values) out.U32(std::bit_cast<uint32_t>(v));
    return Sha256Hex(out.bytes());
  }
}

// Part of a longer run: reports `first` tokens more than Decode knows of, out of `total`.
engine::Progress Shifted(const engine::Progress& progress, size_t first, size_t total) {
  if (!progress) return {};
  return [&progress, first, total](size_t done, size_t) { return progress(first + done, total); };
}

Status DecodeProbe(engine::Context& context, artifact::Probe* probe) {
  engine::Logits logits;
  KVG_RETURN(context.Decode(probe->suffix, Schedule::kExact, probe->suffix.size(), &logits));
  probe->padded_sha256 = HashLogits(logits.values);
  KVG_RETURN(context.Decode({&probe->single_token, 1}, Schedule::kFast, 1, &logits));
  probe->single_sha256 = HashLogits(logits.values);
  probe->single_threads = context.options().n_threads;
  return Status::Ok();
}

Status CheckRequest(const engine::Context& context, const engine::Model& model,
                    const CaptureRequest& request) {
  const engine::ModelInfo& info = model.info();
  const size_t n = request.tokens.size();
  if (!info.unsupported.empty()) {
    return Status(Code::kUnsupported,
                  "capture: this model's state cannot be captured: " + info.unsupported);
  }
  if (n == 0) return Status(Code::kInvalidArgument, "capture: no tokens to capture (empty text?)");
  for (size_t i = 0; i < n; ++i) {
    if (request.tokens[i] < 0 || static_cast<uint32_t>(request.tokens[i]) >= info.n_vocab) {
      return Status(Code::kInvalidArgument, "capture: token " + std::to_string(request.tokens[i]) +
                                                " at index " + std::to_string(i) +
                                                " is outside the vocabulary of " +
                                                std::to_string(info.n_vocab));
    }
  }
  if (static_cast<size_t>(context.n_past()) > n) {
    return Status(Code::kInvalidArgument, "capture: the context holds " +
                                              std::to_string(context.n_past()) +
                                              " tokens, more than the " + std::to_string(n) +
                                              " to capture: clear or truncate it first");
  }
  if (n > context.n_ctx()) {
    return Status(Code::kExhausted, "capture: the text has " + std::to_string(n) +
                                        " tokens, the context takes " +
                                        std::to_string(context.n_ctx()) + "; use -c " +
                                        std::to_string(n + kProbeTokens) + " or more");
  }
  return Status::Ok();
}

void FillManifest(const engine::Context& context, const engine::Model& model,
                  const CaptureRequest& request, uint64_t n_image, artifact::Parts* parts) {
  const engine::ContextOptions& options = context.options();
  artifact::Manifest& m = parts->manifest;
  m.name = request.name;
  m.identity = context.identity();
  m.n_tokens = request.tokens.size();
  m.n_image_tokens = n_image;
  m.schedule = {.kind = "exact",
                .row_quantum = options.row_quantum,
                .attention = options.attention == engine::Attention::kOn ? "flash" : "plain",
                .n_ubatch = options.n_ubatch,
                .verified = request.verified_schedule};
  m.parent = request.parent;
  m.model_name = model.info().name;
  m.created = UtcNow();
  m.producer = request.producer;
  m.prompt_kind = request.prompt_kind;
  m.prompt_suffix = request.prompt_suffix;
  parts->tokens = request.tokens;
  parts->text = request.text;
}

// The content identity, computed beside the probe. Falls back to this thread's time where the
// system gives no other thread.
class IdentityJob {
 public:
  IdentityJob(const artifact::Parts& parts, ByteSpan image) {
    auto work = [&parts, image] {
      return artifact::ContentId(parts.manifest.identity, parts.tokens, parts.positions,
                                 parts.manifest.n_image_tokens, image);
    };
    try {
      future_ = std::async(std::launch::async, work);
    } catch (const std::system_error&) {
      future_ = std::async(std::launch::deferred, work);
    }
  }
  std::string Wait() { return future_.get(); }

 private:
  std::future<std::string> future_;  // its destructor waits, so an early return is safe
};

}  // namespace

artifact::Probe ProbeTokens(size_t n_vocab) {
  KVG_CHECK(n_vocab > 0);
  artifact::Probe probe;
  uint32_t x = 0x9E3779B9u;
  for (size_t i = 0; i < kProbeTokens; ++i) {
    x = x * 1664525u + 1013904223u;
    const Token token = static_cast<Token>(x % n_vocab);
    if (i < kProbeSuffixTokens) {
      probe.suffix.push_back(token);
    } else {
      probe.single_token = token;
    }
  }
  return probe;
}

Status RunProbe(engine::Context& context, artifact::Probe* probe) {
  const engine::Pos start = context.n_past();
  const size_t needed = static_cast<size_t>(start) + probe->suffix.size() + 1;
  if (needed > context.n_ctx()) {
    return Status(Code::kExhausted, "probe: " + std::to_string(needed) +
                                        " tokens needed, the context takes " +
                                        std::to_string(context.n_ctx()) + "; use -c " +
                                        std::to_string(needed) + " or more");
  }
  const Status decoded = DecodeProbe(context, probe);
  const Status cut = context.Truncate(start);
  if (!cut.ok()) {
    // A state with probe tokens at its end must not be taken for the document's.
    KVG_RETURN(context.Clear());
    return (decoded.ok() ? cut : decoded).Annotate("probe");
  }
  return decoded.Annotate("probe");
}

Result<ImageBuffer> TakeImage(engine::Context& context) {
  KVG_ASSIGN(const size_t n_bytes, context.ImageBytes());
  KVG_ASSIGN(ImageBuffer image, NewImageBuffer(n_bytes));
  KVG_RETURN(context.SaveImage(image));
  return image;
}

Result<Captured> Capture(engine::Context& context, const engine::Model& model,
                         const CaptureRequest& request, const engine::Progress& progress) {
  KVG_RETURN(CheckRequest(context, model, request));
  const std::span<const Token> tokens(request.tokens);
  const size_t n = tokens.size();
  const size_t alignment = model.info().state_alignment;
  const size_t n_image = n / alignment * alignment;
  Captured out;

  // A context beyond the image's end goes back to it: the cells that a sliding window has dropped
  // since then end before the window of n_image, as n_past < n_image + alignment.
  if (static_cast<size_t>(context.n_past()) > n_image) {
    KVG_RETURN(context.Truncate(static_cast<engine::Pos>(n_image)).Annotate("capture"));
  }
  out.tokens_computed = n - static_cast<size_t>(context.n_past());
  const size_t first_row = request.tail_loss ? TailLoss::FirstRow(n, kTailLossTokens) : n;
  if (request.verified_schedule && static_cast<size_t>(context.n_past()) > first_row) {
    const Status cut = context.Truncate(static_cast<engine::Pos>(first_row));
    if (!cut.ok() && cut.code() != Code::kUnsupported) return cut.Annotate("capture");
  }
  const size_t start = static_cast<size_t>(context.n_past());
  TailLoss loss(tokens, first_row);

  Stopwatch clock;
  if (start < n_image) {
    KVG_RETURN(loss.Decode(context, start, n_image, Shifted(progress, start, n)));
  }
  out.prefill_ms = clock.Ms();

  clock = Stopwatch();
  KVG_ASSIGN(out.image, TakeImage(context));
  out.image_ms = clock.Ms();
  FillManifest(context, model, request, n_image, &out.parts);
  artifact::Probe probe = ProbeTokens(model.info().n_vocab);

  IdentityJob identity(out.parts, out.image);
  clock = Stopwatch();
  if (n_image < n) {
    KVG_RETURN(loss.Decode(context, n_image, n, Shifted(progress, n_image, n)));
  }
  out.prefill_ms += clock.Ms();
  out.parts.manifest.tail_loss = ToMicronats(loss.values());

  clock = Stopwatch();
  const bool probe_fits = n + kProbeTokens <= context.n_ctx();
  if (request.probe && probe_fits) KVG_RETURN(RunProbe(context, &probe).Annotate("capture"));
  out.probe_ms = clock.Ms();

  clock = Stopwatch();
  out.parts.manifest.id = identity.Wait();
  out.image_ms += clock.Ms();
  if (request.probe && probe_fits) out.parts.manifest.probe = std::move(probe);
  out.parts.manifest.prefill_us = static_cast<uint64_t>(out.prefill_ms * 1000);
  return out;
}

}  // namespace kvgraft::session
