#include "kvgraft/core/kv_state.h"

#include <algorithm>

namespace kvgraft {
namespace {

struct TypeRow {
  DType type;
  const char* name;
  BlockSize block;
};

constexpr TypeRow kTypes[] = {
    {DType::kF32, "f32", {1, 4}},        {DType::kF16, "f16", {1, 2}},
    {DType::kBF16, "bf16", {1, 2}},      {DType::kQ8_0, "q8_0", {32, 34}},
    {DType::kQ5_1, "q5_1", {32, 24}},    {DType::kQ5_0, "q5_0", {32, 22}},
    {DType::kQ4_1, "q4_1", {32, 20}},    {DType::kQ4_0, "q4_0", {32, 18}},
    {DType::kIq4Nl, "iq4_nl", {32, 18}},
};

const TypeRow* Find(DType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace

std::string DTypeName(DType type) {
  const TypeRow* row = Find(type);
  return row != nullptr ? row->name : "type " + std::to_string(static_cast<uint32_t>(type));
}

Result<BlockSize> BlockOf(DType type) {
  const TypeRow* row = Find(type);
  if (row != nullptr) return row->block;
  return Status(Code::kUnsupported,
                "cache of " + DTypeName(type) + ": not a type that this version reads as numbers");
}

const char* StreamKindName(StreamKind kind) {
  switch (kind) {
    case StreamKind::kKey:
      return "key";
    case StreamKind::kValue:
      return "value";
    case StreamKind::kMlaLatent:
      return "mla_latent";
    case StreamKind::kMlaRopeKey:
      return "mla_rope_key";
    case StreamKind::kIndexerKey:
      return "indexer_key";
    case StreamKind::kConvState:
      return "conv_state";
    case StreamKind::kScanState:
      return "scan_state";
  }
  return "unknown";
}

bool IsKey(StreamKind kind) {
  return kind == StreamKind::kKey || kind == StreamKind::kMlaLatent ||
         kind == StreamKind::kMlaRopeKey || kind == StreamKind::kIndexerKey;
}

const char* TableKindName(TableKind kind) {
  switch (kind) {
    case TableKind::kAll:
      return "all";
    case TableKind::kWindow:
      return "window";
    case TableKind::kIndexer:
      return "indexer";
    case TableKind::kRecurrent:
      return "recurrent";
  }
  return "unknown";
}

bool KvLayout::recurrent() const {
  return std::find(tables.begin(), tables.end(), TableKind::kRecurrent) != tables.end();
}

}  // namespace kvgraft
