// Several artifacts in one question: the exact state of their very sequence where the store has it,
// else composed behind the drift gate, or computed.
#pragma once

#include <string>
#include <vector>

#include "kvgraft/app/ask.h"

namespace kvgraft::app {

// Several artifacts as one text.
struct ArtifactSequence {
  std::vector<engine::Token> tokens;
  std::vector<size_t> ends;  // of each artifact in it
  std::string text;
};
Result<ArtifactSequence> JoinTexts(const engine::Model& model,
                                   const std::vector<OpenedArtifact>& opened);

// Puts all of them into the empty context and fills in the report.
Status GraftSeveral(Runtime& runtime, engine::Context& context,
                    const std::vector<OpenedArtifact>& opened, const ArtifactSequence& all,
                    const AskOptions& options, AskReport* report);

// Takes over what a graft says of itself.
void AddGrafted(const session::Grafted& grafted, const OpenedArtifact& opened, AskReport* report);

}  // namespace kvgraft::app
