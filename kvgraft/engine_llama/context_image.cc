// Of LlamaContext: the state as bytes, as arrays, and moved.
#include <algorithm>

#include "kvgraft/engine_llama/context_internal.h"
#include "kvgraft/engine_llama/rope_probe_internal.h"

namespace kvgraft::engine_llama {

using engine::Pos;
using engine::Schedule;
using engine::Token;

Result<size_t> LlamaContext::ImageBytes() {
  KVG_RETURN(layout_status_);
  const size_t bytes = llama_state_seq_get_size(context_.get(), kLive);
  if (bytes == 0) return Status(Code::kInternal, "libllama gave no state size: " + TakeErrorLog());
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
                                       std::to_string(bytes) + " state bytes: " + TakeErrorLog());
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
  TakeErrorLog();
  const size_t read = llama_state_seq_set_data(context_.get(), image.data(), image.size(), kLive);
  if (read != image.size() || llama_memory_seq_pos_max(memory_, kLive) != end - 1) {
    llama_memory_clear(memory_, true);
    return Status(Code::kInternal,
                  "libllama took " + std::to_string(read) + " of " + std::to_string(image.size()) +
                      " state bytes; the sequence is empty now. " + TakeErrorLog());
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

Result<KvView> LlamaContext::ViewImage(ByteSpan image) {
  KVG_RETURN(Layout().status());
  return ViewPlanes(*planes_, image);
}

Result<MutableKvView> LlamaContext::ViewImage(MutableByteSpan image) {
  KVG_RETURN(Layout().status());
  return ViewPlanes(*planes_, image);
}

Result<ImageBuffer> LlamaContext::FormatImage(const std::vector<std::vector<int32_t>>& positions) {
  KVG_RETURN(Layout().status());
  return FormatPlanes(*planes_, positions);
}

Status LlamaContext::StorePositions(MutableByteSpan image,
                                    const std::vector<std::vector<int32_t>>& positions) {
  KVG_RETURN(Layout().status());
  return engine_llama::StorePositions(*planes_, image, positions);
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
    TakeErrorLog();
    const int32_t failed = llama_decode(context_.get(), batch_.get());
    if (failed != 0) {
      llama_memory_seq_rm(memory_, kScratch, -1, -1);
      return Status(Code::kInternal, "scratch traffic failed in libllama: " + TakeErrorLog());
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
  Result<ImageLayout> layout = LearnLayout(image, state_->info.recurrent);
  if (layout.ok()) {
    layout_ = std::move(layout).value();
  } else {
    layout_status_ = layout.status();
  }
  return Clear();
}

}  // namespace kvgraft::engine_llama
