#include "kvgraft/engine/toy_net.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kvgraft/core/bytes.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/engine/toy_engine.h"

namespace kvgraft::engine::toy {
namespace {

// Uniform in [-1, 1), number `index` of the stream `seed`.
float Uniform(uint64_t seed, uint64_t index) {
  const uint64_t bits = Mix(seed + Mix(index));
  return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
}

// out[j] = sum over i of w[i][j] * x[i], summed from i = rotation upwards and round.
//   w: [n_in][n_out]   x: [n_in]   out: [n_out]
void MatVec(const std::vector<float>& w, uint32_t n_in, uint32_t n_out, const float* x,
            uint32_t rotation, float* out) {
  std::fill(out, out + n_out, 0.0f);
  for (uint32_t step = 0; step < n_in; ++step) {
    const uint32_t i = (step + rotation) % n_in;
    const float xi = x[i];
    const float* row = w.data() + size_t{i} * n_out;
    for (uint32_t j = 0; j < n_out; ++j) out[j] += row[j] * xi;
  }
}

void RmsNorm(const float* x, const std::vector<float>& weight, float* out) {
  float sum = 0.0f;
  for (uint32_t i = 0; i < kEmbd; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / kEmbd + 1e-6f);
  for (uint32_t i = 0; i < kEmbd; ++i) out[i] = x[i] * scale * weight[i];
}

struct Rotation {
  std::array<float, kHeadDim / 2> cos, sin;
};

Rotation RotationAt(Pos pos, const Rope& rope) {
  Rotation r;
  for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
    const double angle =
        double{rope.freq_scale} * pos * std::pow(double{rope.freq_base}, -2.0 * i / kHeadDim);
    r.cos[i] = static_cast<float>(std::cos(angle));
    r.sin[i] = static_cast<float>(std::sin(angle));
  }
  return r;
}

// x: [n_heads][head_dim]; pairs (i, i + head_dim/2), as in "neox" RoPE.
void Rotate(const Rotation& r, uint32_t n_heads, float* x) {
  for (uint32_t h = 0; h < n_heads; ++h, x += kHeadDim) {
    for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
      const float a = x[i], b = x[i + kHeadDim / 2];
      x[i] = a * r.cos[i] - b * r.sin[i];
      x[i + kHeadDim / 2] = a * r.sin[i] + b * r.cos[i];
    }
  }
}

float Score(const float* q, const float* k) {
  float s = 0.0f;
  for (uint32_t d = 0; d < kHeadDim; ++d) s += q[d] * k[d];
  return s * 0.35355339f;  // 1 / sqrt(head_dim)
}

// One head: q and out [head_dim]; k and v point at the head's part of cell 0.
void AttendPlain(const float* q, const float* k, const float* v, size_t first, size_t end,
                 std::vector<float>& weights, float* out) {
  weights.resize(end - first);
  float max = -INFINITY;
  for (size_t c = first; c < end; ++c) {
    weights[c - first] = Score(q, k + c * kKvDim);
    max = std::max(max, weights[c - first]);
  }
  float sum = 0.0f;
  for (float& w : weights) {
    w = std::exp(w - max);
    sum += w;
  }
  std::fill(out, out + kHeadDim, 0.0f);
  for (size_t c = first; c < end; ++c) {
    const float w = weights[c - first] / sum;
    for (uint32_t d = 0; d < kHeadDim; ++d) out[d] += w * v[c * kKvDim + d];
  }
}

void AttendOnline(const float* q, const float* k, const float* v, size_t first, size_t end,
                  float* out) {
  float max = -INFINITY, sum = 0.0f;
  std::fill(out, out + kHeadDim, 0.0f);
  for (size_t c = first; c < end; ++c) {
    const float s = Score(q, k + c * kKvDim);
    if (s > max) {
      const float shrink = std::exp(max - s);  // 0 for the first cell
      sum *= shrink;
      for (uint32_t d = 0; d < kHeadDim; ++d) out[d] *= shrink;
      max = s;
    }
    const float w = std::exp(s - max);
    sum += w;
    for (uint32_t d = 0; d < kHeadDim; ++d) out[d] += w * v[c * kKvDim + d];
  }
  for (uint32_t d = 0; d < kHeadDim; ++d) out[d] /= sum;
}

float Silu(float x) { return x / (1.0f + std::exp(-x)); }

}  // namespace

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void Cells::Reserve(size_t n_cells) {
  for (Layer& layer : layers) {
    if (layer.k.size() >= n_cells * kKvDim) continue;
    const size_t size = std::max(n_cells * kKvDim, layer.k.size() * 2);
    layer.k.resize(size);
    layer.v.resize(size);
  }
}

Net::Net(uint64_t seed) {
  uint64_t tensor = 0;
  // n values of the given standard deviation around `mean`.
  auto draw = [&](std::vector<float>& t, size_t n, float mean, float deviation) {
    const uint64_t stream = Mix(seed * 1000003 + ++tensor);
    t.resize(n);
    for (size_t i = 0; i < n; ++i) t[i] = mean + deviation * 1.7320508f * Uniform(stream, i);
  };
  const float unit = 1.0f / std::sqrt(float{kEmbd});
  draw(embed_, kVocab * kEmbd, 0.0f, 1.0f);
  for (Layer& l : layers_) {
    draw(l.attn_norm, kEmbd, 1.0f, 0.1f);
    draw(l.wq, kEmbd * kEmbd, 0.0f, 1.5f * unit);
    draw(l.wk, kEmbd * kKvDim, 0.0f, 1.5f * unit);
    draw(l.wv, kEmbd * kKvDim, 0.0f, 1.5f * unit);
    draw(l.wo, kEmbd * kEmbd, 0.0f, 1.5f * unit);
    draw(l.ffn_norm, kEmbd, 1.0f, 0.1f);
    draw(l.w_gate, kEmbd * kFfn, 0.0f, unit);
    draw(l.w_up, kEmbd * kFfn, 0.0f, unit);
    draw(l.w_down, kFfn * kEmbd, 0.0f, 1.0f / std::sqrt(float{kFfn}));
  }
  draw(out_norm_, kEmbd, 1.0f, 0.1f);
  draw(w_out_, kEmbd * kVocab, 0.0f, 2.0f * unit);
  draw(prior_, kVocab, 0.0f, 0.25f);
  // Mostly letters and spaces, so that generated text looks like text and ends at times.
  for (Token t = 0; t < static_cast<Token>(kVocab); ++t) {
    const bool letter = t == ' ' || (t >= 'a' && t <= 'z');
    const bool printable = t == '\n' || (t >= 32 && t < 127);
    prior_[t] += letter         ? 0.0f
                 : printable    ? -2.0f
                 : t == kToyEnd ? -3.0f
                 : t < 256      ? -6.0f
                                : -20.0f;
  }

  Sha256 hash;
  EachTensor([&](const std::vector<float>& t) {
    ByteWriter bytes;
    for (float v : t) bytes.U32(std::bit_cast<uint32_t>(v));
    hash.Update(bytes.bytes());
  });
  sha256_ = hash.Finish();
}

template <typename F>
void Net::EachTensor(F&& f) const {
  f(embed_);
  for (const Layer& l : layers_) {
    for (const auto* t :
         {&l.attn_norm, &l.wq, &l.wk, &l.wv, &l.wo, &l.ffn_norm, &l.w_gate, &l.w_up, &l.w_down})
      f(*t);
  }
  f(out_norm_);
  f(w_out_);
  f(prior_);
}

uint64_t Net::n_params() const {
  uint64_t n = 0;
  EachTensor([&](const std::vector<float>& t) { n += t.size(); });
  return n;
}

void Net::Forward(Token token, Pos pos, Pos from, const Kernel& kernel, const Rope& rope,
                  uint32_t window, Cells& cells, float* hidden) const {
  const size_t cell = static_cast<size_t>(pos);
  const size_t end = cell + 1;
  const size_t first =
      std::max(static_cast<size_t>(from), window > 0 && end > window ? end - window : 0);
  cells.Reserve(end);
  const Rotation rotation = RotationAt(pos, rope);
  std::array<float, kEmbd> x, h, q, heads, mixed;
  std::array<float, kFfn> gate, up;
  std::vector<float> weights;
  std::copy_n(embed_.data() + size_t(token) * kEmbd, kEmbd, x.data());
  for (uint32_t n = 0; n < kLayers; ++n) {
    const Layer& l = layers_[n];
    Cells::Layer& kv = cells.layers[n];
    RmsNorm(x.data(), l.attn_norm, h.data());
    MatVec(l.wq, kEmbd, kEmbd, h.data(), kernel.rotation, q.data());
    MatVec(l.wk, kEmbd, kKvDim, h.data(), kernel.rotation, kv.k.data() + cell * kKvDim);
    MatVec(l.wv, kEmbd, kKvDim, h.data(), kernel.rotation, kv.v.data() + cell * kKvDim);
    Rotate(rotation, kHeads, q.data());
    Rotate(rotation, kKvHeads, kv.k.data() + cell * kKvDim);
    for (uint32_t head = 0; head < kHeads; ++head) {
      const uint32_t at = head / (kHeads / kKvHeads) * kHeadDim;
      const float* qh = q.data() + head * kHeadDim;
      float* out = heads.data() + head * kHeadDim;
      if (kernel.online_softmax)
        AttendOnline(qh, kv.k.data() + at, kv.v.data() + at, first, end, out);
      else
        AttendPlain(qh, kv.k.data() + at, kv.v.data() + at, first, end, weights, out);
    }
    MatVec(l.wo, kEmbd, kEmbd, heads.data(), kernel.rotation, mixed.data());
    for (uint32_t i = 0; i < kEmbd; ++i) x[i] += mixed[i];
    RmsNorm(x.data(), l.ffn_norm, h.data());
    MatVec(l.w_gate, kEmbd, kFfn, h.data(), kernel.rotation, gate.data());
    MatVec(l.w_up, kEmbd, kFfn, h.data(), kernel.rotation, up.data());
    for (uint32_t i = 0; i < kFfn; ++i) gate[i] = Silu(gate[i]) * up[i];
    MatVec(l.w_down, kFfn, kEmbd, gate.data(), kernel.rotation, mixed.data());
    for (uint32_t i = 0; i < kEmbd; ++i) x[i] += mixed[i];
  }
  RmsNorm(x.data(), out_norm_, hidden);
}

void Net::Logits(const float* hidden, const Kernel& kernel, float* out) const {
  MatVec(w_out_, kEmbd, kVocab, hidden, kernel.rotation, out);
  for (uint32_t t = 0; t < kVocab; ++t) out[t] += prior_[t];
}

}  // namespace kvgraft::engine::toy
