// Rotary position embedding as engines apply it to keys (RoFormer: Su et al., arXiv 2104.09864;
// YaRN: Peng et al., arXiv 2309.00071; Llama 3.1's frequency factors; linear scaling), and the
// rotation that carries a key from one position to another.
//
// A key at position p is m * R(a(p)) x, where R turns pair i of the rotated dimensions by the angle
// a_i(p) and m is YaRN's magnitude. Going from p to q is R(a(q) - a(p)): the magnitude stays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft {

enum class RopePairing {
  kInterleaved,  // (0,1), (2,3) ...: llama
  kHalfSplit,    // (0, n/2), (1, n/2+1) ...: Qwen, Gemma ("neox")
};

struct RopeSpec {
  RopePairing pairing = RopePairing::kHalfSplit;
  uint32_t offset = 0;  // first rotated dimension of a head
  uint32_t n_rot = 0;   // rotated dimensions, even; the others are left as they are
  float freq_base = 10000.0f;
  float freq_scale = 1.0f;  // linear scaling and YaRN: 1 / factor
  // YaRN; ext_factor 0: none.
  float ext_factor = 0.0f, attn_factor = 1.0f, beta_fast = 32.0f, beta_slow = 1.0f;
  uint32_t n_ctx_orig = 0;          // context that the model was trained with before scaling
  std::vector<float> freq_factors;  // [n_rot / 2] divide the frequencies; empty: all 1
  bool operator==(const RopeSpec&) const = default;
};

// kInvalidArgument for a spec that no engine could apply to heads of this size.
Status CheckRope(const RopeSpec& spec, uint32_t head_dim);

// Angles of all pairs at position `pos`, [n_rot / 2]. In float and in the engine's order of
// operations, rounding included: at large positions the rounding of an angle is larger than that of
// an F16 key, and what the engine wrote is what must be turned back.
void RopeAngles(const RopeSpec& spec, int32_t pos, std::span<float> angles);

// YaRN's factor on the keys' length; 1 without YaRN (and attn_factor 1).
float RopeMagnitude(const RopeSpec& spec);

// A rotation: one angle for each pair of dimensions.
class RopeTurn {
 public:
  // From position `from` to position `to`: the difference of the angles, in double.
  static RopeTurn Between(const RopeSpec& spec, int32_t from, int32_t to);
  // The rotation that the engine applies at `pos` to a key without position, magnitude included.
  static RopeTurn At(const RopeSpec& spec, int32_t pos);
  // Its inverse: takes the position and the magnitude out of a key.
  static RopeTurn Out(const RopeSpec& spec, int32_t pos);

  // Turns one head, [head_dim], in place.
  void Apply(const RopeSpec& spec, std::span<float> head) const;

 private:
  RopeTurn(std::span<const double> angles, double length);
  std::vector<float> cos_, sin_;  // [n_rot / 2]
};

}  // namespace kvgraft
