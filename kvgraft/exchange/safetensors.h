// The safetensors container, as Python reads and writes it: a u64 with the header's length, a JSON
// header, the tensors' bytes. Little-endian throughout.
//   https://github.com/huggingface/safetensors#format
// This file knows names, types and ranges; what the tensors mean is planes_file.h's business.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/status.h"

namespace kvgraft::exchange {

struct Tensor {
  std::string name;
  std::string dtype;            // "F16", "I32", ...
  std::vector<uint64_t> shape;  // slowest axis first, last axis contiguous; empty: one number
  uint64_t begin = 0, end = 0;  // bytes of the data, which follow the header
};

// The header's __metadata__: strings only.
using Metadata = std::map<std::string, std::string>;

// Bytes of one element: 2 for "F16"; 0 for a type that is not in the list.
uint32_t ElementBytes(std::string_view dtype);
// Bytes of the tensor by type and shape. kUnsupported for the type, kCorrupt when no file can hold
// so many.
Result<uint64_t> TensorBytes(const Tensor& tensor);

// Length and header of a file that holds these tensors one after the other; fills in begin and end.
// Spaces behind the JSON make the data start at a multiple of 64. kInvalidArgument for a name that
// occurs twice, text that is not UTF-8, or a header above kMaxHeaderBytes.
Result<std::vector<uint8_t>> EncodeHeader(std::vector<Tensor>* tensors, const Metadata& metadata);

// A file whose header has been checked: JSON without repeated members, known types, sizes that
// agree with shapes, and ranges that cover the data once, without holes and overlaps. Views into
// the bytes, which outlive it.
class SafetensorsView {
 public:
  // Takes memory in proportion to the header only. kCorrupt; kUnsupported for a type that this
  // version does not know. `what` names the file in messages.
  static Result<SafetensorsView> Parse(ByteSpan file, const std::string& what);

  const Metadata& metadata() const { return metadata_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }  // in order of their bytes
  const Tensor* Find(std::string_view name) const;                 // null: none
  ByteSpan data(const Tensor& tensor) const {
    return data_.subspan(tensor.begin, tensor.end - tensor.begin);
  }

 private:
  Metadata metadata_;
  std::vector<Tensor> tensors_;
  ByteSpan data_;
};

// Whether a file starts as this container does; its first 9 bytes tell.
bool LooksLikeSafetensors(ByteSpan file);

// The reference reader takes 100 MB; what kvgraft writes stays far below this.
inline constexpr uint64_t kMaxHeaderBytes = 16ull << 20;

}  // namespace kvgraft::exchange
