#include <algorithm>
#include <bit>

#include "kvgraft/core/hash.h"
#include "kvgraft/exchange/metadata.h"
#include "kvgraft/exchange/planes_file.h"
#include "kvgraft/exchange/stream_tensor.h"

namespace kvgraft::exchange {
namespace {

// Tensors in the order of their bytes: wide elements first, so that each starts at a multiple of
// its element's size.
struct Plan {
  std::vector<Tensor> tensors;
  std::vector<size_t> streams;  // in the order of their tensors
};

Plan MakePlan(const KvView& view, const artifact::Reader& artifact) {
  Plan plan;
  const std::vector<StreamSpec>& streams = view.layout->streams;
  plan.tensors.push_back({.name = "tokens", .dtype = "I32", .shape = {artifact.tokens().size()}});
  for (uint32_t t = 0; t < view.positions.size(); ++t) {
    plan.tensors.push_back({.name = PositionsName(view.layout->tables[t]),
                            .dtype = "I32",
                            .shape = {view.positions[t].size()}});
  }
  for (const uint32_t bytes : {4u, 2u}) {
    for (size_t s = 0; s < streams.size(); ++s) {
      const Tensor tensor = TensorFor(streams[s], view.n_cells(s));
      if (ElementBytes(tensor.dtype) != bytes) continue;
      plan.tensors.push_back(tensor);
      plan.streams.push_back(s);
    }
  }
  if (!artifact.text().empty()) {
    plan.tensors.push_back({.name = "text", .dtype = "U8", .shape = {artifact.text().size()}});
  }
  return plan;
}

Status AppendList(const std::vector<int32_t>& values, AtomicFile* out) {
  ByteWriter bytes;
  for (const int32_t v : values) bytes.I32(v);
  return out->Append(bytes.bytes());
}

Status WriteStreams(const KvView& view, const Plan& plan, std::string_view architecture,
                    AtomicFile* out) {
  const std::vector<KeyOrder> orders = OrdersFor(*view.layout, architecture);
  std::vector<uint8_t> bytes;
  for (const size_t s : plan.streams) {
    KVG_ASSIGN(const uint64_t size,
               TensorBytes(TensorFor(view.layout->streams[s], view.n_cells(s))));
    bytes.resize(size);
    KVG_RETURN(ReadTensor(view, s, orders[s], bytes));
    KVG_RETURN(out->Append(bytes));
  }
  return Status::Ok();
}

}  // namespace

Result<Exported> ExportPlanes(engine::Context& context, const engine::Model& model,
                              const artifact::Reader& artifact, AtomicFile* out) {
  if constexpr (std::endian::native != std::endian::little) {
    return Status(Code::kUnsupported, "safetensors files are written on little-endian machines");
  }
  const artifact::Manifest& m = artifact.manifest();
  KVG_RETURN(CheckCompat(m.identity, context.identity()));
  if (m.n_image_tokens == 0) {
    return Status(Code::kUnsupported,
                  "the artifact's image holds no tokens: it is shorter than the " +
                      std::to_string(model.info().state_alignment) +
                      " tokens that this model's states are a multiple of");
  }
  KVG_ASSIGN(const KvView view, context.ViewImage(artifact.image()));
  // The first table ends with the last token, whatever it lists.
  const int64_t n_held = int64_t{view.positions[0].back()} + 1;
  if (n_held != static_cast<int64_t>(m.n_image_tokens)) {
    return Status(Code::kCorrupt, "the image holds " + std::to_string(n_held) +
                                      " tokens, the manifest says " +
                                      std::to_string(m.n_image_tokens));
  }
  const std::string& architecture = model.info().architecture;
  KVG_ASSIGN(const Metadata metadata,
             MakeMetadata(m, *view.layout, architecture, Sha256Hex(artifact.image())));
  Plan plan = MakePlan(view, artifact);
  KVG_ASSIGN(const std::vector<uint8_t> header, EncodeHeader(&plan.tensors, metadata));
  const uint64_t file_bytes = header.size() + plan.tensors.back().end;
  KVG_RETURN(out->Reserve(file_bytes));
  KVG_RETURN(out->Append(header));
  KVG_RETURN(AppendList(artifact.tokens(), out));
  for (const std::vector<int32_t>& table : view.positions) {
    KVG_RETURN(AppendList(table, out));
  }
  KVG_RETURN(WriteStreams(view, plan, architecture, out));
  KVG_RETURN(out->Append(AsBytes(artifact.text())));
  if (out->size() != file_bytes) {
    return Status(Code::kInternal, "safetensors: " + std::to_string(out->size()) +
                                       " bytes written, planned were " +
                                       std::to_string(file_bytes));
  }
  return Exported{.file_bytes = file_bytes, .n_tensors = plan.tensors.size()};
}

}  // namespace kvgraft::exchange
