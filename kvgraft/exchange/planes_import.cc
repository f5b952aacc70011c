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

  // All cells at 0, 1, 2 ...; a window's are a run of these that ends with the last.
  Status ReadPositions() {
    for (uint32_t t = 0; t < layout_->n_tables; ++t) {
      KVG_ASSIGN(std::vector<int32_t> table, ReadList(file_, PositionsName(t)));
      const size_t n = t == 0 ? table.size() : positions_[0].size();
      const size_t first = n - std::min(n, table.size());
      for (size_t i = 0; i < table.size(); ++i) {
        if (table[i] == static_cast<int32_t>(first + i)) continue;
        return Status(Code::kUnsupported,
                      PositionsName(t) + ": element " + std::to_string(i) + " is " +
                          std::to_string(table[i]) + ", expected " + std::to_string(first + i) +
                          ": states are at positions 0, 1, 2 ..., windows end with the last");
      }
      positions_.push_back(std::move(table));
    }
    const uint64_t n_image = positions_[0].size();
    if (n_image > out_.parts.tokens.size()) {
      return Corrupt(std::to_string(n_image) + " positions for " +
                     std::to_string(out_.parts.tokens.size()) + " tokens");
    }
    if (n_image % model_.info().state_alignment != 0) {
      return Status(Code::kUnsupported, "the state ends after " + std::to_string(n_image) +
                                            " tokens; this model's states continue exactly only "
                                            "from a multiple of " +
                                            std::to_string(model_.info().state_alignment));
    }
    return CheckWindows();
  }

  // What the next token attends to must be there.
  Status CheckWindows() const {
    const auto n = static_cast<int64_t>(positions_[0].size());
    const auto reach = static_cast<int64_t>(model_.info().sliding_window);
    for (uint32_t t = 1; t < positions_.size(); ++t) {
      if (positions_[t].front() <= std::max<int64_t>(0, n + 1 - reach)) continue;
      return Corrupt(PositionsName(t) + " starts at " + std::to_string(positions_[t].front()) +
                     "; the window reaches back to " +
                     std::to_string(std::max<int64_t>(0, n + 1 - reach)));
    }
    return Status::Ok();
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
                                               positions_[0].size(), out_.image);
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
      manifest.n_image_tokens = positions_[0].size();
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
  std::vector<std::vector<int32_t>> positions_;
  std::vector<const Tensor*> streams_;  // as in the layout
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
