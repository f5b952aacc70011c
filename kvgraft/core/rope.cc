#include "kvgraft/core/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace kvgraft {
namespace {

// Pair index at which `n_turns` full turns fit into the original context (YaRN, eq. 17 solved for
// the dimension).
float YarnDimension(const RopeSpec& spec, float n_turns) {
  const float length =
      static_cast<float>(spec.n_ctx_orig) / (n_turns * 2.0f * static_cast<float>(std::numbers::pi));
  return static_cast<float>(spec.n_rot) * std::log(length) / (2.0f * std::log(spec.freq_base));
}

struct YarnRange {
  float low = 0, high = 0;
};

YarnRange RangeOf(const RopeSpec& spec) {
  const float last = static_cast<float>(spec.n_rot) - 1.0f;
  return {std::max(0.0f, std::floor(YarnDimension(spec, spec.beta_fast))),
          std::min(last, std::ceil(YarnDimension(spec, spec.beta_slow)))};
}

// Share of the unscaled angle in pair i: 1 below the range, 0 above.
float ExtrapolatedShare(const YarnRange& range, uint32_t pair) {
  const float y = (static_cast<float>(pair) - range.low) / std::max(0.001f, range.high - range.low);
  return 1.0f - std::min(1.0f, std::max(0.0f, y));
}

Status Bad(const std::string& what) { return Status(Code::kInvalidArgument, "RoPE: " + what); }

}  // namespace

Status CheckRope(const RopeSpec& spec, uint32_t head_dim) {
  if (spec.n_rot == 0 || spec.n_rot % 2 != 0 || spec.n_rot > head_dim ||
      spec.offset > head_dim - spec.n_rot) {
    return Bad("dimensions " + std::to_string(spec.offset) + " to " +
               std::to_string(uint64_t{spec.offset} + spec.n_rot) + " of a head of " +
               std::to_string(head_dim) + "; expected an even number of them inside the head");
  }
  if (!(spec.freq_base > 1) || !(spec.freq_scale > 0) || !std::isfinite(spec.freq_base)) {
    return Bad("frequency base " + std::to_string(spec.freq_base) + ", scale " +
               std::to_string(spec.freq_scale) + "; expected a base above 1 and a scale above 0");
  }
  if (!spec.freq_factors.empty() && spec.freq_factors.size() != spec.n_rot / 2) {
    return Bad(std::to_string(spec.freq_factors.size()) + " frequency factors, expected " +
               std::to_string(spec.n_rot / 2));
  }
  if (spec.ext_factor != 0 && spec.n_ctx_orig == 0) return Bad("YaRN without an original context");
  return Status::Ok();
}

void RopeAngles(const RopeSpec& spec, int32_t pos, std::span<float> angles) {
  const float step = std::pow(spec.freq_base, -2.0f / static_cast<float>(spec.n_rot));
  const YarnRange range = spec.ext_factor != 0 ? RangeOf(spec) : YarnRange();
  float theta = static_cast<float>(pos);
  for (uint32_t i = 0; i < spec.n_rot / 2; ++i) {
    const float factor = spec.freq_factors.empty() ? 1.0f : spec.freq_factors[i];
    const float plain = theta / factor;
    float angle = spec.freq_scale * plain;
    if (spec.ext_factor != 0) {
      const float mix = ExtrapolatedShare(range, i) * spec.ext_factor;
      angle = angle * (1.0f - mix) + plain * mix;
    }
    angles[i] = angle;
    theta *= step;
  }
}

float RopeMagnitude(const RopeSpec& spec) {
  if (spec.ext_factor == 0) return spec.attn_factor;
  return spec.attn_factor * (1.0f + 0.1f * std::log(1.0f / spec.freq_scale));
}

namespace {

std::vector<double> Angles(const RopeSpec& spec, int32_t pos) {
  std::vector<float> angles(spec.n_rot / 2);
  RopeAngles(spec, pos, angles);
  return {angles.begin(), angles.end()};
}

}  // namespace

RopeTurn::RopeTurn(std::span<const double> angles, double length) {
  for (const double angle : angles) {
    cos_.push_back(static_cast<float>(std::cos(angle) * length));
    sin_.push_back(static_cast<float>(std::sin(angle) * length));
  }
}

RopeTurn RopeTurn::Between(const RopeSpec& spec, int32_t from, int32_t to) {
  std::vector<double> angles = Angles(spec, to);
  const std::vector<double> before = Angles(spec, from);
  for (size_t i = 0; i < angles.size(); ++i) angles[i] -= before[i];
  return RopeTurn(angles, 1.0);
}

RopeTurn RopeTurn::At(const RopeSpec& spec, int32_t pos) {
  return RopeTurn(Angles(spec, pos), RopeMagnitude(spec));
}

RopeTurn RopeTurn::Out(const RopeSpec& spec, int32_t pos) {
  std::vector<double> angles = Angles(spec, pos);
  for (double& a : angles) a = -a;
  return RopeTurn(angles, 1.0 / double{RopeMagnitude(spec)});
}

void RopeTurn::Apply(const RopeSpec& spec, std::span<float> head) const {
  // A loop of its own for each pairing: with a constant step the compiler uses vectors.
  const size_t half = spec.n_rot / 2;
  const float* cos = cos_.data();
  const float* sin = sin_.data();
  float* a = head.data() + spec.offset;
  if (spec.pairing == RopePairing::kHalfSplit) {
    for (size_t i = 0; i < half; ++i) {
      const float x = a[i], y = a[half + i];
      a[i] = x * cos[i] - y * sin[i];
      a[half + i] = x * sin[i] + y * cos[i];
    }
  } else {
    for (size_t i = 0; i < half; ++i) {
      const float x = a[2 * i], y = a[2 * i + 1];
      a[2 * i] = x * cos[i] - y * sin[i];
      a[2 * i + 1] = x * sin[i] + y * cos[i];
    }
  }
}

}  // namespace kvgraft
