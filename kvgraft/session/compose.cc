#include "kvgraft/session/compose.h"

#include <algorithm>
#include <string>

#include "kvgraft/core/stopwatch.h"
#include "kvgraft/graft/move.h"
#include "kvgraft/math/cells.h"
#include "kvgraft/session/artifact_checks.h"
#include "kvgraft/session/compose_internal.h"
#include "kvgraft/session/image_buffer.h"
#include "kvgraft/session/prompt.h"
#include "kvgraft/session/tail_loss.h"

namespace kvgraft::session {
namespace {

using engine::Pos;
using engine::Token;
using Positions = std::vector<std::vector<int32_t>>;

// How many of the artifact's tokens do not stand for its own text: the template's head before a
// document, which the first artifact has already opened, or a beginning-of-sequence token.
Result<size_t> CountHead(const engine::Model& model, const artifact::Reader& artifact) {
  const std::vector<Token>& tokens = artifact.tokens();
  if (artifact.manifest().prompt_kind == "chat" && !artifact.text().empty()) {
    const Segment document[] = {{artifact.text()}, {"\n\n"}};  // as BuildDocumentPrompt ends
    KVG_ASSIGN(const std::vector<Token> own, TokenizeSegments(model, document, /*bos=*/false));
    if (own.size() < tokens.size() && std::equal(own.rbegin(), own.rend(), tokens.rbegin())) {
      return tokens.size() - own.size();
    }
  }
  KVG_ASSIGN(const std::vector<Token> bos, model.Tokenize("", /*add_bos=*/true, false));
  const bool has = bos.size() == 1 && !tokens.empty() && tokens[0] == bos[0];
  return has ? size_t{1} : size_t{0};
}

Status CheckAttach(engine::Context& context, const engine::Model& model,
                   const artifact::Reader& artifact, unsigned verify_threads) {
  if (context.n_past() == context.first_pos()) {
    return Status(Code::kInvalidArgument,
                  "the context is empty: graft the first artifact, attach the others");
  }
  KVG_RETURN(CheckCompat(artifact.manifest().identity, context.identity()));
  KVG_RETURN(CheckTokens(model, artifact));
  KVG_RETURN(CheckMovable(context));
  const auto held = static_cast<uint64_t>(context.n_past() - context.first_pos());
  const uint64_t needed = held + artifact.tokens().size();
  if (needed > context.n_ctx()) {
    return Status(Code::kExhausted, "the artifacts have " + std::to_string(needed) +
                                        " tokens together, the context takes " +
                                        std::to_string(context.n_ctx()) + "; use -c " +
                                        std::to_string(needed) +
                                        " or more, plus room for the question and the answer");
  }
  return artifact.VerifyPages(ThreadsOr(verify_threads));
}

// Cells of a table whose position is `from` or more: the first of them.
size_t FirstCell(const std::vector<int32_t>& positions, int32_t from) {
  return static_cast<size_t>(std::lower_bound(positions.begin(), positions.end(), from) -
                             positions.begin());
}

// Where cells of `added` go: behind what is held, or alone where a window begins behind it and so
// leaves what is held outside.
struct Joint {
  Positions positions;         // of the joined state
  std::vector<size_t> n_held;  // cells of each table that come from what is held
};

Joint PlanJoint(const KvView& held, const KvView& added, const std::vector<size_t>& first,
                const std::vector<size_t>& last, int64_t shift) {
  Joint out;
  for (size_t t = 0; t < held.positions.size(); ++t) {
    std::vector<int32_t>& table = out.positions.emplace_back(held.positions[t]);
    const std::vector<int32_t>& from = added.positions[t];
    if (first[t] < last[t] && !table.empty() && from[first[t]] + shift != table.back() + 1) {
      table.clear();
    }
    out.n_held.push_back(table.size());
    for (size_t i = first[t]; i < last[t]; ++i) {
      table.push_back(static_cast<int32_t>(from[i] + shift));
    }
  }
  return out;
}

// What is held and the cells first .. last-1 of `added`, their keys turned by `turn`, as one image:
// each cell is copied once, and turned on the way.
Result<ImageBuffer> Join(engine::Context& context, const KvView& held, const KvView& added,
                         const std::vector<size_t>& first, const std::vector<size_t>& last,
                         const Joint& joint, int64_t turn) {
  KVG_ASSIGN(ImageBuffer image, context.FormatImage(joint.positions));
  KVG_ASSIGN(const MutableKvView all, context.ViewImage(MutableByteSpan(image)));
  std::vector<graft::Placement> from_held, from_added;
  for (uint32_t t = 0; t < joint.positions.size(); ++t) {
    from_held.push_back({t, 0, joint.n_held[t], 0, 0});
    from_added.push_back({t, first[t], last[t] - first[t], joint.n_held[t], turn});
  }
  const uint32_t n_threads = context.options().n_threads;
  KVG_RETURN(graft::PlaceCells(held, from_held, all, n_threads));
  KVG_RETURN(graft::PlaceCells(added, from_added, all, n_threads));
  return image;
}

Result<Attached> AttachChecked(engine::Context& context, const engine::Model& model,
                               const artifact::Reader& artifact, const AttachOptions& options,
                               const engine::Progress& progress) {
  const std::span<const Token> tokens(artifact.tokens());
  KVG_ASSIGN(const size_t skip, CountHead(model, artifact));
  const size_t n = tokens.size(), n_image = artifact.manifest().n_image_tokens;
  Attached out;
  out.tokens_dropped = skip;
  const auto [first, end, first_row] =
      PlanAttach(n, n_image, skip, options.link_tokens, options.held_tokens);
  TailLoss loss(tokens, first_row);

  Stopwatch clock;
  if (first > skip) KVG_RETURN(loss.Decode(context, skip, first, progress));
  out.link_ms = clock.Ms();
  out.tokens_computed = first - skip;
  if (first < n) {
    const int64_t turn = int64_t{context.n_past()} - static_cast<int64_t>(first);
    KVG_RETURN(AttachCells(context, artifact.image(), n_image, {first, end, turn}, &out));
    clock = Stopwatch();
    if (end < n) KVG_RETURN(loss.Decode(context, end, n, progress));
    out.tokens_computed += n - end;
    out.tail_ms = clock.Ms();
  }
  if (options.held_tokens > 0) out.held_loss = loss.values();
  return out;
}

}  // namespace

AttachPlan PlanAttach(size_t n, size_t n_image, size_t skip, size_t link_tokens,
                      size_t held_tokens) {
  AttachPlan plan;
  plan.first_row = held_tokens > 0 ? TailLoss::FirstRow(n, held_tokens) : n;
  plan.end = std::min(n_image, plan.first_row);
  plan.first = std::min(n, skip + link_tokens);
  if (plan.first >= plan.end) plan.first = n;  // nothing of the image would be used
  return plan;
}

Status AttachCells(engine::Context& context, ByteSpan stored, size_t n_image, const CellRun& run,
                   Attached* out) {
  Stopwatch clock;
  KVG_ASSIGN(const ImageBuffer before, TakeImage(context));
  KVG_ASSIGN(const KvView held, context.ViewImage(ByteSpan(before)));
  KVG_RETURN(context.CheckImage(stored, static_cast<Pos>(n_image)));
  KVG_ASSIGN(const KvView added, context.ViewImage(stored));
  std::vector<size_t> first, last;  // cells of each table
  for (const std::vector<int32_t>& table : added.positions) {
    first.push_back(FirstCell(table, static_cast<int32_t>(run.first)));
    last.push_back(FirstCell(table, static_cast<int32_t>(run.end)));
  }
  const Pos at = context.n_past();
  const Joint joint =
      PlanJoint(held, added, first, last, int64_t{at} - static_cast<int64_t>(run.first));
  KVG_ASSIGN(const ImageBuffer image, Join(context, held, added, first, last, joint, run.turn));
  out->move_ms = clock.Ms();

  clock = Stopwatch();
  const Pos start = context.first_pos();
  KVG_RETURN(context.LoadImageAt(image, start, at + static_cast<Pos>(run.end - run.first)));
  out->load_ms = clock.Ms();
  out->tokens_reused = run.end - run.first;
  return Status::Ok();
}

Status CheckMovable(engine::Context& context) {
  KVG_ASSIGN(const KvLayout* layout, context.Layout());
  return graft::CheckMovable(*layout);
}

Result<std::vector<Token>> TokensBehind(const engine::Model& model,
                                        const artifact::Reader& artifact) {
  const std::vector<Token>& tokens = artifact.tokens();
  KVG_ASSIGN(const size_t skip, CountHead(model, artifact));
  return std::vector<Token>(tokens.begin() + static_cast<int64_t>(skip), tokens.end());
}

Result<Attached> Attach(engine::Context& context, const engine::Model& model,
                        const artifact::Reader& artifact, const AttachOptions& options,
                        const engine::Progress& progress) {
  KVG_CHECK(options.held_tokens < 64);
  Stopwatch clock;
  KVG_RETURN(CheckAttach(context, model, artifact, options.verify_threads).Annotate("attach"));
  const double verify_ms = clock.Ms();
  Result<Attached> out = AttachChecked(context, model, artifact, options, progress);
  if (!out.ok()) {
    // Half of a composition must not answer for all of it.
    KVG_RETURN(context.Clear());
    return out.status().Annotate("attach");
  }
  out->verify_ms = verify_ms;
  return out;
}

}  // namespace kvgraft::session
