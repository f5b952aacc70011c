#include <algorithm>
#include <cmath>
#include <string>

#include "kvgraft/engine_llama/rope_probe_internal.h"
#include "kvgraft/math/cells.h"

namespace kvgraft::engine_llama {
namespace {

using engine::Pos;

constexpr Pos kPositions[] = {0, 5, 777};
constexpr llama_token kToken = 5;
// Of the longest component of a head. The angles agree exactly, the rest is rounding of F32;
// another base or pairing is off by more than a hundred times as much.
constexpr float kTolerance = 1e-3f;

using KeyRows = std::vector<std::vector<float>>;  // per stream; empty for values

// The keys, in F32, of one token alone at `pos`; other streams are empty.
Result<KeyRows> KeysAt(const ModelState& state, const ModelGeometry& geometry,
                       const engine::ContextOptions& options, Pos pos) {
  engine::ContextOptions o = options;
  o.n_ctx = 64;
  o.n_ubatch = 64;
  o.row_quantum = 1;
  o.attention = engine::Attention::kOff;
  o.type_k = o.type_v = "f32";
  TakeErrorLog();
  const ContextPtr context(llama_init_from_model(state.model.get(), MakeParams(o)));
  if (!context) {
    return Status(Code::kExhausted, "planes: no context for the RoPE probe: " + TakeErrorLog());
  }
  llama_batch batch = llama_batch_init(1, 0, 1);
  batch.n_tokens = 1;
  batch.token[0] = kToken % static_cast<llama_token>(state.info.n_vocab);
  batch.pos[0] = pos;
  batch.n_seq_id[0] = 1;
  batch.seq_id[0][0] = 0;
  batch.logits[0] = 0;
  const int32_t failed = llama_decode(context.get(), batch);
  llama_batch_free(batch);
  if (failed != 0) return Status(Code::kInternal, "planes: RoPE probe failed: " + TakeErrorLog());

  std::vector<uint8_t> image(llama_state_seq_get_size(context.get(), 0));
  if (llama_state_seq_get_data(context.get(), image.data(), image.size(), 0) != image.size()) {
    return Status(Code::kInternal, "planes: RoPE probe gave no state: " + TakeErrorLog());
  }
  KVG_ASSIGN(const ImageLayout layout, LearnLayout(image, state.info.recurrent, pos));
  KVG_ASSIGN(const Planes planes, MatchPlanes(layout, geometry, state.info.architecture));
  KVG_ASSIGN(const KvView view, ViewPlanes(planes, ByteSpan(image)));
  KeyRows rows;
  for (size_t i = 0; i < view.streams.size(); ++i) {
    const StreamSpec& spec = planes.layout.streams[i];
    std::vector<float>& row = rows.emplace_back();
    if (!IsKey(spec.kind)) continue;
    row.resize(spec.width());
    KVG_RETURN(math::ReadCells(view, i, 0, 1, row));
    if (spec.rope_hadamard > 0) math::Hadamard(row, spec.rope_hadamard);
  }
  return rows;
}

// Whether turning `from` (at position 0) to `pos` gives `to`; both [heads][head_dim].
bool Turns(const RopeSpec& rope, uint32_t head_dim, const std::vector<float>& from,
           const std::vector<float>& to, Pos pos) {
  const RopeTurn turn = RopeTurn::Between(rope, 0, pos);
  std::vector<float> head(head_dim);
  for (size_t at = 0; at < from.size(); at += head_dim) {
    std::copy_n(from.begin() + static_cast<int64_t>(at), head_dim, head.begin());
    turn.Apply(rope, head);
    float largest = 0, apart = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      largest = std::max(largest, std::fabs(to[at + d]));
      apart = std::max(apart, std::fabs(to[at + d] - head[d]));
    }
    if (!(apart <= kTolerance * largest)) return false;
  }
  return true;
}

bool Unmoved(const std::vector<float>& from, const std::vector<float>& to) {
  float largest = 0, apart = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    largest = std::max(largest, std::fabs(to[i]));
    apart = std::max(apart, std::fabs(to[i] - from[i]));
  }
  return apart <= kTolerance * largest;
}

}  // namespace

Status FindRopes(const ModelState& state, const ModelGeometry& geometry,
                 const engine::ContextOptions& options, Planes* planes) {
  const auto is_key = [](const StreamSpec& spec) { return IsKey(spec.kind); };
  const std::vector<StreamSpec>& streams = planes->layout.streams;
  if (std::none_of(streams.begin(), streams.end(), is_key)) return Status::Ok();
  std::vector<KeyRows> keys;
  for (const Pos pos : kPositions) {
    KVG_ASSIGN(KeyRows rows, KeysAt(state, geometry, options, pos));
    if (rows.size() != planes->layout.streams.size()) {
      return Status(Code::kUnsupported, "planes: other streams in F32 than in " + options.type_k);
    }
    keys.push_back(std::move(rows));
  }
  planes->layout.ropes = geometry.ropes;
  std::vector<bool> used(geometry.ropes.size(), false);
  for (size_t i = 0; i < planes->layout.streams.size(); ++i) {
    StreamSpec& spec = planes->layout.streams[i];
    if (keys[0][i].empty()) continue;
    const auto fits = [&](const RopeSpec& rope) {
      if (!CheckRope(rope, spec.head_dim).ok()) return false;
      for (size_t p = 1; p < keys.size(); ++p) {
        if (!Turns(rope, spec.head_dim, keys[0][i], keys[p][i], kPositions[p])) return false;
      }
      return true;
    };
    if (Unmoved(keys[0][i], keys[1][i]) && Unmoved(keys[0][i], keys[2][i])) continue;
    const auto found = std::find_if(geometry.ropes.begin(), geometry.ropes.end(), fits);
    if (found == geometry.ropes.end()) {
      return Status(Code::kUnsupported,
                    "planes: how '" + state.info.architecture + "' rotates the " +
                        StreamKindName(spec.kind) + " of layer " + std::to_string(spec.layer) +
                        " is not known to this version; its states keep to their positions");
    }
    spec.rope = static_cast<int32_t>(found - geometry.ropes.begin());
    used[static_cast<size_t>(spec.rope)] = true;
  }
  // Keep those that are used.
  std::vector<int32_t> renamed(used.size(), -1);
  planes->layout.ropes.clear();
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    renamed[i] = static_cast<int32_t>(planes->layout.ropes.size());
    planes->layout.ropes.push_back(geometry.ropes[i]);
  }
  for (StreamSpec& spec : planes->layout.streams) {
    if (spec.rope >= 0) spec.rope = renamed[static_cast<size_t>(spec.rope)];
  }
  return Status::Ok();
}

}  // namespace kvgraft::engine_llama
