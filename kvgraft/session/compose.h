// Several artifacts in one context: the first at its own position (Graft), each further one behind
// what is there already, its keys turned to their new positions.
//
// What an attached state lacks is attention to what now stands before it. Its first tokens, decoded
// again in their new place ("link tokens"; EPIC, arXiv 2410.15332, section 3), repair the attention
// sink that they had become for their own text; the rest is as it was captured. So the result is an
// approximation, of tier "composed".
#pragma once

#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/engine/engine.h"

namespace kvgraft::session {

// The one place of this figure; docs/fidelity.md says why.
inline constexpr uint32_t kDefaultLinkTokens = 16;

struct AttachOptions {
  // Tokens decoded in the new place, from the artifact's first; its whole length: an exact prefill.
  uint32_t link_tokens = kDefaultLinkTokens;
  // Of the artifact's last tokens, how many are decoded in the new place with their loss taken, one
  // more standing before them: 0 .. 63. What the drift gate (session/drift.h) compares.
  uint32_t held_tokens = 0;
  unsigned verify_threads = 0;  // 0: the machine's cores
};

struct Attached {
  uint64_t tokens_reused = 0;     // attached
  uint64_t tokens_computed = 0;   // link and held tokens, and those behind the image (alignment)
  uint64_t tokens_dropped = 0;    // of the head, see TokensBehind
  std::vector<double> held_loss;  // of the last held_tokens, in nats
  double verify_ms = 0, link_ms = 0, move_ms = 0, load_ms = 0, tail_ms = 0;
  double restore_ms() const { return verify_ms + move_ms + load_ms; }
};

// The artifact's tokens as they follow others: a document of a chat without the template's head, so
// that all documents stand in the one turn that the first has opened; other texts without a
// beginning-of-sequence token.
Result<std::vector<engine::Token>> TokensBehind(const engine::Model& model,
                                                const artifact::Reader& artifact);

// Whether states of this context can stand elsewhere than at their own position: kUnsupported for
// caches without planes, and for recurrent states.
Status CheckMovable(engine::Context& context);

// Attaches the artifact behind the live sequence, which holds at least one token. Everything that
// can be refused is, before the context is touched: identity, tokens, size, page checksums, a state
// that cannot be moved. After a later error the context is empty.
// Errors: kMismatch, kExhausted, kCorrupt, kUnsupported, kCancelled.
Result<Attached> Attach(engine::Context& context, const engine::Model& model,
                        const artifact::Reader& artifact, const AttachOptions& options = {},
                        const engine::Progress& progress = {});

}  // namespace kvgraft::session
