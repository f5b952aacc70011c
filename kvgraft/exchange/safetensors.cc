#include "kvgraft/exchange/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "kvgraft/artifact/json_check.h"

namespace kvgraft::exchange {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kDataAlignment = 64;
constexpr int kMaxDepth = 3;  // header, tensor, shape
constexpr size_t kMaxRank = 8;
constexpr char kMetadataName[] = "__metadata__";

struct TypeRow {
  const char* name;
  uint32_t bytes;
};
constexpr TypeRow kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                              {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                              {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};

Status Corrupt(const std::string& what, const std::string& message) {
  return Status(Code::kCorrupt, what + ": safetensors: " + message);
}

Result<std::vector<uint64_t>> Numbers(const json& value, size_t limit) {
  const Status bad(Code::kCorrupt, "is not an array of at most " + std::to_string(limit) +
                                       " non-negative integers");
  if (!value.is_array() || value.size() > limit) return bad;
  std::vector<uint64_t> out;
  for (const json& v : value) {
    if (!v.is_number_unsigned()) return bad;
    out.push_back(v.get<uint64_t>());
  }
  return out;
}

Result<Tensor> ReadTensor(const std::string& name, const json& value) {
  Tensor tensor;
  tensor.name = name;
  if (!value.is_object()) return Status(Code::kCorrupt, "is not an object");
  const auto dtype = value.find("dtype"), shape = value.find("shape"),
             offsets = value.find("data_offsets");
  if (dtype == value.end() || !dtype->is_string()) return Status(Code::kCorrupt, "has no dtype");
  if (shape == value.end()) return Status(Code::kCorrupt, "has no shape");
  if (offsets == value.end()) return Status(Code::kCorrupt, "has no data_offsets");
  tensor.dtype = dtype->get<std::string>();
  auto axes = Numbers(*shape, kMaxRank);
  if (!axes.ok()) return axes.status().Annotate("shape");
  tensor.shape = *axes;
  auto range = Numbers(*offsets, 2);
  if (!range.ok() || range->size() != 2) {
    return Status(Code::kCorrupt, "data_offsets is not an array of 2 non-negative integers");
  }
  tensor.begin = (*range)[0];
  tensor.end = (*range)[1];
  KVG_ASSIGN(const uint64_t bytes, TensorBytes(tensor));
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != bytes) {
    return Status(Code::kCorrupt, "data_offsets are " + std::to_string(tensor.begin) + " to " +
                                      std::to_string(tensor.end) + ", its shape takes " +
                                      std::to_string(bytes) + " bytes");
  }
  return tensor;
}

Status ReadMetadata(const json& value, Metadata* out) {
  if (!value.is_object()) return Status(Code::kCorrupt, "is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return Status(Code::kCorrupt, "\"" + key + "\" is not a string");
    (*out)[key] = text.get<std::string>();
  }
  return Status::Ok();
}

// The tensors in the order of their bytes; they must follow each other from 0 to `data_bytes`.
Status CheckRanges(std::vector<Tensor>* tensors, uint64_t data_bytes) {
  std::stable_sort(tensors->begin(), tensors->end(), [](const Tensor& a, const Tensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t at = 0;
  for (const Tensor& tensor : *tensors) {
    if (tensor.begin != at) {
      return Status(Code::kCorrupt, "tensor \"" + tensor.name + "\" starts at byte " +
                                        std::to_string(tensor.begin) + ", the one before it " +
                                        (tensor.begin < at ? "reaches" : "ends at") + " byte " +
                                        std::to_string(at));
    }
    at = tensor.end;
  }
  if (at != data_bytes) {
    return Status(Code::kCorrupt, "the tensors take " + std::to_string(at) +
                                      " bytes, the file has " + std::to_string(data_bytes) +
                                      " after its header: cut off, or damaged");
  }
  return Status::Ok();
}

}  // namespace

uint32_t ElementBytes(std::string_view dtype) {
  for (const TypeRow& row : kTypes) {
    if (dtype == row.name) return row.bytes;
  }
  return 0;
}

Result<uint64_t> TensorBytes(const Tensor& tensor) {
  uint64_t bytes = ElementBytes(tensor.dtype);
  if (bytes == 0) {
    return Status(Code::kUnsupported,
                  "dtype \"" + tensor.dtype + "\" is not known to this version");
  }
  for (const uint64_t axis : tensor.shape) {
    if (axis != 0 && bytes > std::numeric_limits<int64_t>::max() / axis) {
      return Status(Code::kCorrupt, "its shape takes more than 2^63 bytes");
    }
    bytes *= axis;
  }
  return bytes;
}

Result<std::vector<uint8_t>> EncodeHeader(std::vector<Tensor>* tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string text;
  uint64_t at = 0;
  std::set<std::string> names = {kMetadataName};
  try {
    if (!metadata.empty()) header[kMetadataName] = metadata;
    for (Tensor& tensor : *tensors) {
      if (!names.insert(tensor.name).second) {
        return Status(Code::kInvalidArgument,
                      "safetensors: two tensors named \"" + tensor.name + "\"");
      }
      KVG_ASSIGN(const uint64_t bytes, TensorBytes(tensor));
      tensor.begin = at;
      tensor.end = at += bytes;
      header[tensor.name] = {{"dtype", tensor.dtype},
                             {"shape", tensor.shape},
                             {"data_offsets", {tensor.begin, tensor.end}}};
    }
    text = header.dump();
  } catch (const std::exception& e) {  // invalid UTF-8
    return Status(Code::kInvalidArgument, std::string("safetensors: ") + e.what());
  }
  const uint64_t all = (kLengthBytes + text.size() + kDataAlignment - 1) & ~(kDataAlignment - 1);
  text.resize(all - kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return Status(Code::kInvalidArgument, "safetensors: a header of " + FormatBytes(text.size()) +
                                              ", the limit is " + FormatBytes(kMaxHeaderBytes));
  }
  ByteWriter out;
  out.U64(text.size());
  out.Bytes(AsBytes(text));
  return std::move(out).Take();
}

Result<SafetensorsView> SafetensorsView::Parse(ByteSpan file, const std::string& what) {
  ByteReader in(file, what);
  KVG_ASSIGN(const uint64_t length, in.U64());
  if (length > kMaxHeaderBytes) {
    return Corrupt(what, "a header of " + std::to_string(length) + " bytes, the limit is " +
                             std::to_string(kMaxHeaderBytes));
  }
  KVG_ASSIGN(const ByteSpan head, in.Take(length));
  const std::string_view text = AsChars(head);
  if (text.empty() || text[0] != '{') return Corrupt(what, "the header does not start with '{'");
  if (const Status sound = artifact::CheckJson(text, kMaxDepth); !sound.ok()) {
    return Corrupt(what, sound.message());
  }
  SafetensorsView out;
  out.data_ = file.subspan(kLengthBytes + length);
  json header;
  try {
    header = json::parse(text);
  } catch (const std::exception& e) {
    return Corrupt(what, e.what());
  }
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataName) {
      if (const Status s = ReadMetadata(value, &out.metadata_); !s.ok()) {
        return Corrupt(what, "__metadata__ " + s.message());
      }
      continue;
    }
    Result<Tensor> tensor = ReadTensor(name, value);
    if (!tensor.ok()) {
      return tensor.status().Annotate(what + ": safetensors: tensor \"" + name + "\"");
    }
    out.tensors_.push_back(std::move(*tensor));
  }
  if (const Status s = CheckRanges(&out.tensors_, out.data_.size()); !s.ok()) {
    return Corrupt(what, s.message());
  }
  return out;
}

const Tensor* SafetensorsView::Find(std::string_view name) const {
  const auto at = std::find_if(tensors_.begin(), tensors_.end(),
                               [name](const Tensor& t) { return t.name == name; });
  return at == tensors_.end() ? nullptr : &*at;
}

bool LooksLikeSafetensors(ByteSpan file) {
  ByteReader in(file, "");
  const Result<uint64_t> length = in.U64();
  return length.ok() && *length <= kMaxHeaderBytes && in.remaining() > 0 &&
         file[kLengthBytes] == '{';
}

}  // namespace kvgraft::exchange
