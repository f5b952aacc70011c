#include <algorithm>
#include <bit>

#include "kvgraft/core/hash.h"
#include "kvgraft/core/utc.h"
#include "kvgraft/exchange/metadata.h"
#include "kvgraft/exchange/planes_file.h"
#include "kvgraft/exchange/stream_tensor.h"

namespace kvgraft::exchange {
namespace {

Status Corrupt(const std::string& message) { return Status(Code::kCorrupt, message); }

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (const uint64_t axis : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(axis);
  return text + "]";
}

// The tensor of this name, if its type and shape are as expected.
Result<const Tensor*> Want(const SafetensorsView& file, const Tensor& expected) {
  const Tensor* tensor = file.Find(expected.name);
  if (tensor == nullptr) return Corrupt("there is no tensor \"" + expected.name + "\"");
  if (tensor->dtype != expected.dtype || tensor->shape != expected.shape) {
    return Corrupt("tensor \"" + expected.name + "\" is " + tensor->dtype + " " +
                   ShapeText(tensor->shape) + ", expected " + expected.dtype + " " +
                   ShapeText(expected.shape));
  }
  return tensor;
}

// A list of I32 of any length up to the limit.
Result<std::vector<int32_t>> ReadList(const SafetensorsView& file, const std::string& name) {
  const Tensor* any = file.Find(name);
  const uint64_t n = any != nullptr && any->shape.size() == 1 ? any->shape[0] : 0;
  KVG_ASSIGN(const Tensor* tensor, Want(file, {.name = name, .dtype = "I32", .shape = {n}}));
  if (n == 0 || n > artifact::kMaxTokens) {
    return Corrupt("tensor \"" + name + "\" has " + std::to_string(n) +
                   " elements, expected 1 to " + std::to_string(artifact::kMaxTokens));
  }
  std::vector<int32_t> out(n);
  ByteReader in(file.data(*tensor), name);
  for (int32_t& v : out) {
    KVG_ASSIGN(v, in.I32());
  }
  return out;
}

class Importer {
 public:
  Importer(engine::Context& context, const engine::Model& model, const SafetensorsView& file)
      : context_(context), model_(model), file_(file) {}

  Result<Imported> Run(const std::string& producer) {
    KVG_ASSIGN(artifact::Manifest manifest, ReadManifest(file_.metadata()));
    KVG_RETURN(CheckCompat(manifest.identity, context_.identity()));
    KVG_ASSIGN(layout_, context_.Layout());
    KVG_RETURN(CheckStreams(file_.metadata(), *layout_, model_.info().architecture));
    KVG_RETURN(ReadTokens());
    KVG_RETURN(ReadPositions());
    KVG_RETURN(CheckTensors());
    KVG_ASSIGN(out_.image, context_.FormatImage(positions_));
    KVG_RETURN(Fill());
    KVG_RETURN(Judge(std::move(manifest), producer));
    return std::move(out_);
  }

 private:
  Status ReadTokens() {
    KVG_ASSIGN(out_.parts.tokens, ReadList(file_, "tokens"));
    const uint32_t n_vocab = model_.info().n_vocab;
    const std::vector<int32_t>& tokens = out_.parts.tokens;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && static_cast<uint32_t>(tokens[i]) < n_vocab) continue;
      return Corrupt("token " + std::to_string(tokens[i]) + " at index " + std::to_string(i) +
                     " is outside the vocabulary of " + std::to_string(n_vocab));
    }
    const Tensor* text = file_.Find("text");
    if (text == nullptr) return Status::Ok();
    KVG_RETURN(
        Want(file_, {.name = "text", .dtype = "U8", .shape = {text->end - text->begin}}).status());
    if (text->end - text->begin > artifact::kMaxTextBytes) {
      return Corrupt("tensor \"text\" is larger than " + FormatBytes(artifact::kMaxTextBytes));
    }
    out_.parts.text = AsChars(file_.data(*text));
    return Status::Ok();
  }

  // All cells at 0, 1, 2 ...; a window's are a run of these that ends with the last, a recurrent
  // state is at the last.
  Status ReadPositions() {
    for (const TableKind kind : layout_->tables) {
      const std::string name = PositionsName(kind);
      KVG_ASSIGN(std::vector<int32_t> table, ReadList(file_, name));
      if (positions_.empty()) {
        n_image_ = kind == TableKind::kRecurrent ? int64_t{table.back()} + 1
                                                 : static_cast<int64_t>(table.size());
      }
      KVG_RETURN(CheckTable(kind, name, table));
      positions_.push_back(std::move(table));
    }
    if (n_image_ > static_cast<int64_t>(out_.parts.tokens.size())) {
      return Corrupt("positions of " + std::to_string(n_image_) + " tokens for " +
                     std::to_string(out_.parts.tokens.size()));
    }
    if (n_image_ % model_.info().state_alignment != 0) {
      return Status(Code::kUnsupported, "the state ends after " + std::to_string(n_image_) +
                                            " tokens; this model's states continue exactly only "
                                            "from a multiple of " +
                                            std::to_string(model_.info().state_alignment));
    }
    return Status::Ok();
  }

  // What the next token attends to must be there.
  Status CheckTable(TableKind kind, const std::string& name,
                    const std::vector<int32_t>& table) const {
    const auto n = static_cast<int64_t>(table.size());
    const int64_t first = n_image_ - n;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t pos = table[static_cast<size_t>(i)];
      if (pos >= 0 && pos == first + i) continue;
      return Status(Code::kUnsupported,
                    name + ": element " + std::to_string(i) + " is " + std::to_string(pos) +
                        ", expected " + std::to_string(std::max<int64_t>(0, first + i)) +
                        ": states are at positions 0, 1, 2 ..., windows and recurrent states end "
                        "with the last");
    }
    if (kind == TableKind::kRecurrent) {
      if (n == 1) return Status::Ok();
      return Corrupt(name + " has " + std::to_string(n) + " elements, expected 1");
    }
    const auto reach = static_cast<int64_t>(model_.info().sliding_window);
    const int64_t needed =
        kind == TableKind::kWindow ? std::max<int64_t>(0, n_image_ + 1 - reach) : 0;
    if (first <= needed) return Status::Ok();
    return Corrupt(name + " starts at " + std::to_string(first) + "; the " +
                   (kind == TableKind::kWindow ? "window reaches" : "cells must reach") +
                   " back to " + std::to_string(needed));
  }

  // Every stream's tensor, and no others.
  Status CheckTensors() {
    for (const StreamSpec& stream : layout_->streams) {
      KVG_ASSIGN(const Tensor* tensor,
                 Want(file_, TensorFor(stream, positions_[stream.table].size())));
      streams_.push_back(tensor);
    }
    const size_t known =
        streams_.size() + positions_.size() + 1 + (file_.Find("text") != nullptr ? 1 : 0);
    if (known == file_.tensors().size()) return Status::Ok();
    return Corrupt(std::to_string(file_.tensors().size()) + " tensors, of which only " +
                   std::to_string(known) + " are a part of this model's state");
  }

  Status Fill() {
    KVG_ASSIGN(const MutableKvView view, context_.ViewImage(MutableByteSpan(out_.image)));
    const std::vector<KeyOrder> orders = OrdersFor(*layout_, model_.info().architecture);
    for (size_t s = 0; s < streams_.size(); ++s) {
      KVG_RETURN(WriteTensor(view, s, orders[s], file_.data(*streams_[s])));
    }
    return Status::Ok();
  }

  // What the state may be called.
  Status Judge(artifact::Manifest manifest, const std::string& producer) {
    const std::string id = artifact::ContentId(manifest.identity, out_.parts.tokens, {},
                                               static_cast<uint64_t>(n_image_), out_.image);
    const auto recorded = file_.metadata().find(kImageSha256);
    if (recorded == file_.metadata().end() || recorded->second != Sha256Hex(ByteSpan(out_.image))) {
      out_.difference = "the numbers are not those that were exported";
    } else if (manifest.id != id || manifest.n_tokens != out_.parts.tokens.size()) {
      out_.difference = "tokens or identity are not those that were exported";
    }
    out_.identical = out_.difference.empty();
    if (!out_.identical) {
      KVG_RETURN(CheckFinite());
      manifest.id = id;
      manifest.tier = kImportedTier;
      manifest.n_tokens = out_.parts.tokens.size();
      manifest.n_image_tokens = static_cast<uint64_t>(n_image_);
      manifest.schedule.kind = "fast";  // not known to be computed by the padding rule
      manifest.schedule.verified = false;
      manifest.probe = {};
      manifest.parent.clear();
      manifest.created = UtcNow();
      manifest.producer = producer;
      manifest.prefill_us = 0;
    }
    out_.parts.manifest = std::move(manifest);
    return Status::Ok();
  }

  Status CheckFinite() const {
    for (const Tensor* tensor : streams_) {
      if (AllFinite(tensor->dtype, file_.data(*tensor))) continue;
      return Corrupt("tensor \"" + tensor->name + "\" holds a number that is not finite");
    }
    return Status::Ok();
  }

  engine::Context& context_;
  const engine::Model& model_;
  const SafetensorsView& file_;
  const KvLayout* layout_ = nullptr;
  std::vector<std::vector<int32_t>> positions_;  // as in the layout's tables
  int64_t n_image_ = 0;                          // tokens in the state
  std::vector<const Tensor*> streams_;           // as in the layout
  Imported out_;
};

}  // namespace

Result<Imported> ImportPlanes(engine::Context& context, const engine::Model& model, ByteSpan file,
                              const std::string& what, const std::string& producer) {
  if constexpr (std::endian::native != std::endian::little) {
    return Status(Code::kUnsupported, "safetensors files are read on little-endian machines");
  }
  KVG_ASSIGN(const SafetensorsView view, SafetensorsView::Parse(file, what));
  Result<Imported> imported = Importer(context, model, view).Run(producer);
  if (!imported.ok()) return imported.status().Annotate(what);
  return imported;
}

}  // namespace kvgraft::exchange
