// The content identity (docs/format.md, section 6).
#include "kvgraft/artifact/artifact.h"
#include "kvgraft/artifact/pack.h"
#include "kvgraft/core/hash.h"

namespace kvgraft::artifact {
namespace {

void AddNumber(Sha256& hash, uint64_t v) {
  ByteWriter w;
  w.U64(v);
  hash.Update(w.bytes());
}

void AddString(Sha256& hash, std::string_view s) {
  AddNumber(hash, s.size());
  hash.Update(s);
}

}  // namespace

std::string ContentId(const StateIdentity& identity, std::span<const int32_t> tokens,
                      std::span<const int32_t> positions, uint64_t n_image_tokens, ByteSpan image) {
  Sha256 hash;
  hash.Update("kvgraft-state-1\n");
  AddNumber(hash, identity.compat.size());
  for (const IdentityField& f : identity.compat) {
    AddString(hash, f.name);
    AddString(hash, f.value);
  }
  AddNumber(hash, tokens.size());
  hash.Update(PackI32(tokens));
  AddNumber(hash, n_image_tokens);
  if (positions.empty()) {
    hash.Update(PackCounting(n_image_tokens));
  } else {
    hash.Update(PackI32(positions));
  }
  AddNumber(hash, image.size());
  hash.Update(image);
  return hash.Finish();
}

}  // namespace kvgraft::artifact
