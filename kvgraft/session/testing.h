// For tests of this module: a toy model with a context, prompts, captured artifacts, and a context
// that counts and breaks calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/engine/toy_engine.h"
#include "kvgraft/session/capture.h"
#include "kvgraft/session/sample_text.h"

namespace kvgraft::session::testing {

using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

// Natural text, n tokens of it, from byte `skip` on.
inline Tokens Prompt(const engine::Model& model, size_t n, size_t skip = 0) {
  const std::string text(SampleTexts()[0].text.substr(skip, n + 8));
  Result<Tokens> tokens = model.Tokenize(text, true, false);
  EXPECT_TRUE(tokens.ok());
  EXPECT_GE(tokens->size(), n);
  tokens->resize(n);
  return *tokens;
}

inline engine::ContextOptions Options(uint32_t n_ctx = 1024, uint32_t row_quantum = 8) {
  engine::ContextOptions options;
  options.n_ctx = n_ctx;
  options.n_ubatch = 128;
  options.n_threads = 2;
  options.row_quantum = row_quantum;
  return options;
}

struct Toy {
  std::unique_ptr<engine::Model> model;
  std::unique_ptr<engine::Context> context;
};

inline Toy NewToy(const engine::ToyOptions& toy = {.kernel_quantum = 8},
                  const engine::ContextOptions& options = Options()) {
  Toy out;
  out.model = engine::NewToyModel(toy);
  Result<std::unique_ptr<engine::Context>> context = out.model->NewContext(options);
  EXPECT_TRUE(context.ok()) << context.status().message();
  out.context = std::move(*context);
  return out;
}

inline CaptureRequest Request(Tokens tokens) {
  CaptureRequest request;
  request.tokens = std::move(tokens);
  request.verified_schedule = true;
  request.producer = "test 1";
  return request;
}

// The file of an artifact, with a reader over it.
struct File {
  std::vector<uint8_t> bytes;
  Result<artifact::Reader> Open() const { return artifact::Reader::FromBytes(bytes, "test"); }
};

inline File Encode(Captured captured) {
  File file;
  Result<std::vector<uint8_t>> bytes = artifact::Encode(captured.parts, captured.image);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  if (bytes.ok()) file.bytes = std::move(*bytes);
  return file;
}

inline File CaptureFile(Toy& toy, const CaptureRequest& request) {
  EXPECT_TRUE(toy.context->Clear().ok());
  Result<Captured> captured = Capture(*toy.context, *toy.model, request);
  EXPECT_TRUE(captured.ok()) << captured.status().message();
  return captured.ok() ? Encode(std::move(*captured)) : File();
}

// Logits after decoding `tokens` exactly on top of what the context holds.
inline std::vector<float> Continue(engine::Context& context, const Tokens& tokens) {
  engine::Logits logits;
  const Status status = context.Decode(tokens, Schedule::kExact, tokens.size(), &logits);
  EXPECT_TRUE(status.ok()) << status.message();
  return logits.values;
}

// Passes everything on to another context, counts, and fails where told.
class SpyContext : public engine::Context {
 public:
  explicit SpyContext(engine::Context& real) : real_(real) {}

  int loads = 0, checks = 0, decodes = 0, clears = 0;
  int fail_decode = 0;  // the n-th Decode fails
  bool fail_truncate = false;
  bool fail_load_late = false;  // LoadImage fails with the state in place

  const StateIdentity& identity() const override { return real_.identity(); }
  const engine::ContextOptions& options() const override { return real_.options(); }
  uint32_t n_ctx() const override { return real_.n_ctx(); }
  engine::Pos n_past() const override { return real_.n_past(); }
  engine::Pos first_pos() const override { return real_.first_pos(); }
  Status StartAt(engine::Pos first) override {
    ++clears;
    return real_.StartAt(first);
  }
  Status Truncate(engine::Pos n) override {
    if (fail_truncate) return Status(Code::kUnsupported, "spy: cannot be cut");
    return real_.Truncate(n);
  }
  Status Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits,
                engine::Logits* logits, const engine::Progress& progress) override {
    if (++decodes == fail_decode) return Status(Code::kInternal, "spy: decode failed");
    return real_.Decode(tokens, schedule, n_logits, logits, progress);
  }
  Result<size_t> ImageBytes() override { return real_.ImageBytes(); }
  Status SaveImage(MutableByteSpan out) override { return real_.SaveImage(out); }
  Status CheckImageAt(ByteSpan image, engine::Pos first, engine::Pos end) const override {
    ++const_cast<SpyContext*>(this)->checks;
    return real_.CheckImageAt(image, first, end);
  }
  Status LoadImageAt(ByteSpan image, engine::Pos first, engine::Pos end) override {
    ++loads;
    KVG_RETURN(real_.LoadImageAt(image, first, end));
    if (fail_load_late) return Status(Code::kInternal, "spy: load failed late");
    return Status::Ok();
  }
  Result<const KvLayout*> Layout() override { return real_.Layout(); }
  Result<KvView> ViewImage(ByteSpan image) override { return real_.ViewImage(image); }
  Result<MutableKvView> ViewImage(MutableByteSpan image) override { return real_.ViewImage(image); }
  Result<ImageBuffer> FormatImage(const std::vector<std::vector<int32_t>>& positions) override {
    return real_.FormatImage(positions);
  }
  Status StorePositions(MutableByteSpan image,
                        const std::vector<std::vector<int32_t>>& positions) override {
    return real_.StorePositions(image, positions);
  }
  Status ShiftByEngine(engine::Pos delta) override { return real_.ShiftByEngine(delta); }
  Status RunUnrelatedTraffic(uint64_t seed, size_t n) override {
    return real_.RunUnrelatedTraffic(seed, n);
  }
  void SetPaddingSeed(std::optional<uint64_t> seed) override { real_.SetPaddingSeed(seed); }
  Status SetThreads(uint32_t n) override { return real_.SetThreads(n); }

 private:
  engine::Context& real_;
};

}  // namespace kvgraft::session::testing
