#include <algorithm>

#include "kvgraft/engine_llama/block_context_internal.h"

namespace kvgraft::engine_llama {

using engine::Logits;
using engine::Pos;
using engine::Progress;
using engine::Schedule;
using engine::Token;

namespace {

constexpr llama_state_seq_flags kRecurrentPart = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

}  // namespace

void BlockContext::AddTokens(Pos from, Pos to, Pos first_output) {
  for (Pos pos = from; pos < to; ++pos) {
    batch_.Add(tokens_[static_cast<size_t>(pos - tokens_from_)], pos, kLive, pos >= first_output);
  }
}

Status BlockContext::StartAt(Pos first) {
  KVG_RETURN(LlamaContext::StartAt(first));
  tokens_.clear();
  checkpoints_.clear();
  tokens_from_ = border_ = engine_ = first;
  return Status::Ok();
}

Status BlockContext::Keep() {
  if (!checkpoints_.empty() && checkpoints_.back().pos == border_) return Status::Ok();
  Checkpoint checkpoint;
  checkpoint.pos = border_;
  if (border_ > first_pos_) {
    llama_context* const c = context_.get();
    std::vector<uint8_t>& state = checkpoint.state;
    state.resize(llama_state_seq_get_size_ext(c, kLive, kRecurrentPart));
    const size_t written =
        llama_state_seq_get_data_ext(c, state.data(), state.size(), kLive, kRecurrentPart);
    if (written == 0 || written != state.size()) {
      return Status(Code::kInternal, "libllama gave no recurrent state: " + TakeErrorLog());
    }
  }
  checkpoints_.push_back(std::move(checkpoint));
  if (checkpoints_.size() > kCheckpoints) DropOne();
  return Status::Ok();
}

void BlockContext::DropOne() {
  const auto alignment = static_cast<Pos>(state_->info.state_alignment);
  const bool second_will_do = checkpoints_[1].pos <= border_ / alignment * alignment;
  checkpoints_.erase(checkpoints_.begin() + (second_will_do ? 0 : 1));
}

Status BlockContext::BackToBorder() {
  if (engine_ == border_) return Keep();
  engine_ = kNowhere;
  if (checkpoints_.empty() || checkpoints_.back().pos != border_) {
    return Status(Code::kInternal, "no checkpoint at position " + std::to_string(border_));
  }
  const std::vector<uint8_t>& state = checkpoints_.back().state;
  if (state.empty()) {
    llama_memory_clear(memory_, false);
    engine_ = border_;
    return Status::Ok();
  }
  TakeErrorLog();
  const size_t read = llama_state_seq_set_data_ext(context_.get(), state.data(), state.size(),
                                                   kLive, kRecurrentPart);
  // The attention layers, if there are any, hold what came after the checkpoint too.
  if (read != state.size() || !llama_memory_seq_rm(memory_, kLive, border_, -1)) {
    return Status(Code::kInternal, "libllama does not go back to position " +
                                       std::to_string(border_) + ": " + TakeErrorLog());
  }
  engine_ = border_;
  return Status::Ok();
}

Status BlockContext::RunFromBorder(Pos end, uint32_t n_padding, Pos first_output) {
  KVG_RETURN(BackToBorder());
  batch_.Clear();
  AddTokens(border_, end, first_output);
  for (uint32_t i = 0; i < n_padding; ++i) {
    batch_.Add(PaddingToken(i), end + static_cast<Pos>(i), kLive, false);
  }
  if (first_output < end) batch_.PadOutputs(options_.row_quantum);
  engine_ = kNowhere;
  KVG_RETURN(RunBatch());
  if (n_padding == 0) engine_ = end;
  return Status::Ok();
}

Pos BlockContext::BlocksWithin(Pos end, Pos first_output) const {
  const auto block = static_cast<Pos>(options_.row_quantum);
  Pos to = border_ + block;
  while (to + block <= end && to + block - border_ <= static_cast<Pos>(options_.n_ubatch) &&
         to + block - std::min(first_output, to) <= static_cast<Pos>(kMaxOutputs)) {
    to += block;
  }
  return to;
}

Status BlockContext::CloseBlocks() {
  while (border_ + static_cast<Pos>(options_.row_quantum) <= n_past_) {
    const Pos to = BlocksWithin(n_past_, n_past_);
    KVG_RETURN(RunFromBorder(to, 0, to));
    border_ = to;
  }
  return Status::Ok();
}

Status BlockContext::Settle() {
  if (engine_ == n_past_) return Status::Ok();
  KVG_RETURN(CloseBlocks());
  return border_ < n_past_ ? RunFromBorder(n_past_, 0, n_past_) : BackToBorder();
}

Status BlockContext::CopyRows(Pos first, Pos last, Pos row_0, Pos zone, Logits* logits) const {
  for (Pos pos = first; pos < last; ++pos) {
    KVG_RETURN(
        CopyLogits(static_cast<size_t>(pos - row_0), static_cast<size_t>(pos - zone), logits));
  }
  return Status::Ok();
}

Status BlockContext::DecodeExact(Pos end, Pos zone, Logits* logits, Polling* polling) {
  const Pos start = n_past_;
  KVG_RETURN(CloseBlocks());
  while (n_past_ < end) {
    KVG_RETURN(polling->At(static_cast<size_t>(n_past_ - start)));
    const Pos first_output = std::max(zone, n_past_);
    const Pos to = BlocksWithin(end, first_output);
    const Pos last = std::min(to, end);
    // An open block is computed if somebody wants to see its logits, and thrown away again.
    if (to <= end || first_output < end) {
      KVG_RETURN(RunFromBorder(last, static_cast<uint32_t>(to - last), first_output));
      KVG_RETURN(CopyRows(first_output, last, border_, zone, logits));
    }
    if (to <= end) border_ = to;
    n_past_ = last;
  }
  return Status::Ok();
}

Status BlockContext::DecodeFast(Pos end, Pos zone, Logits* logits, Polling* polling) {
  const Pos start = n_past_;
  KVG_RETURN(Settle());
  if (engine_ == border_) KVG_RETURN(Keep());
  while (n_past_ < end) {
    KVG_RETURN(polling->At(static_cast<size_t>(n_past_ - start)));
    const Pos first_output = std::max(zone, n_past_);
    Pos to = std::min(end, n_past_ + static_cast<Pos>(options_.n_ubatch));
    to = std::min(to, first_output + static_cast<Pos>(kMaxOutputs));
    batch_.Clear();
    AddTokens(n_past_, to, first_output);
    engine_ = kNowhere;
    KVG_RETURN(RunBatch());
    KVG_RETURN(CopyRows(first_output, to, n_past_, zone, logits));
    engine_ = n_past_ = to;
  }
  return Status::Ok();
}

Status BlockContext::Decode(std::span<const Token> tokens, Schedule schedule, size_t n_logits,
                            Logits* logits, const Progress& progress) {
  KVG_RETURN(CheckDecode(tokens, n_logits, logits));
  Polling polling(this, progress, tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  const Pos end = n_past_ + static_cast<Pos>(tokens.size());
  const Pos zone = end - static_cast<Pos>(n_logits);  // rows from here on have outputs
  const Status status = schedule == Schedule::kExact ? DecodeExact(end, zone, logits, &polling)
                                                     : DecodeFast(end, zone, logits, &polling);
  tokens_.resize(static_cast<size_t>(n_past_ - tokens_from_));  // shorter after an error
  KVG_RETURN(status);
  return polling.At(tokens.size());
}

Status BlockContext::Truncate(Pos n) {
  KVG_RETURN(CheckCut(n));
  if (n == n_past_) return Status::Ok();
  if (n == first_pos_) return StartAt(n);
  if (n < border_) {
    if (checkpoints_.empty() || checkpoints_.front().pos > n) {
      return Status(Code::kUnsupported,
                    "cut at " + std::to_string(n) +
                        ": a recurrent state cannot lose tokens again, and the checkpoints kept "
                        "begin at " +
                        std::to_string(checkpoints_.empty() ? border_ : checkpoints_.front().pos));
    }
    while (checkpoints_.back().pos > n) checkpoints_.pop_back();
    border_ = checkpoints_.back().pos;
    engine_ = kNowhere;
  }
  if (engine_ > n) engine_ = kNowhere;
  tokens_.resize(static_cast<size_t>(n - tokens_from_));
  n_past_ = n;
  return Status::Ok();
}

Result<size_t> BlockContext::ImageBytes() {
  KVG_RETURN(Settle());
  return LlamaContext::ImageBytes();
}

Status BlockContext::SaveImage(MutableByteSpan out) {
  KVG_RETURN(Settle());
  return LlamaContext::SaveImage(out);
}

Status BlockContext::LoadImageAt(ByteSpan image, Pos first, Pos end) {
  KVG_RETURN(LlamaContext::LoadImageAt(image, first, end));
  tokens_.clear();
  checkpoints_.clear();
  tokens_from_ = border_ = engine_ = end;
  return Status::Ok();
}

Status BlockContext::ShiftByEngine(Pos) {
  return Status(Code::kUnsupported, "the state of '" + state_->info.architecture +
                                        "' is recurrent, or a part of it is: it is valid at its "
                                        "own position only");
}

}  // namespace kvgraft::engine_llama
