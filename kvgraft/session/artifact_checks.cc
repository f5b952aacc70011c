#include "kvgraft/session/artifact_checks.h"

#include <algorithm>
#include <string>
#include <thread>

namespace kvgraft::session {

using engine::Token;

unsigned ThreadsOr(unsigned asked) {
  return asked > 0 ? asked : std::max(1u, std::thread::hardware_concurrency());
}

Status CheckTokens(const engine::Model& model, const artifact::Reader& artifact) {
  const artifact::Manifest& m = artifact.manifest();
  const std::vector<Token>& tokens = artifact.tokens();
  if (tokens.empty() || tokens.size() != m.n_tokens || m.n_image_tokens > m.n_tokens) {
    return Status(Code::kCorrupt, "artifact: the manifest says " + std::to_string(m.n_tokens) +
                                      " tokens, " + std::to_string(m.n_image_tokens) +
                                      " of them in the image; the token list has " +
                                      std::to_string(tokens.size()));
  }
  const uint32_t n_vocab = model.info().n_vocab;
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [n_vocab](Token t) {
    return t < 0 || static_cast<uint32_t>(t) >= n_vocab;
  });
  if (bad != tokens.end()) {
    return Status(Code::kCorrupt, "artifact: token " + std::to_string(*bad) + " at index " +
                                      std::to_string(bad - tokens.begin()) +
                                      " is outside the vocabulary of " + std::to_string(n_vocab));
  }
  const std::vector<int32_t>& positions = artifact.positions();
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] != static_cast<int32_t>(i)) {
      return Status(Code::kUnsupported,
                    "artifact: image token " + std::to_string(i) + " is at position " +
                        std::to_string(positions[i]) +
                        "; this version restores states at positions 0, 1, 2 ... only");
    }
  }
  const uint32_t alignment = model.info().state_alignment;
  if (m.n_image_tokens % alignment != 0) {
    return Status(Code::kUnsupported, "artifact: the image ends after " +
                                          std::to_string(m.n_image_tokens) +
                                          " tokens; this model's states continue exactly only "
                                          "from a multiple of " +
                                          std::to_string(alignment) + ": capture the text again");
  }
  return Status::Ok();
}

}  // namespace kvgraft::session
