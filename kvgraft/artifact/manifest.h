// The manifest section: JSON to Manifest and back (docs/format.md, sections 4, 5 and 7).
#pragma once

#include <string>
#include <string_view>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/status.h"

namespace kvgraft::artifact {

// Compact UTF-8 JSON, members in the order of their names: the same text for the same manifest.
// kInvalidArgument when a value breaks a rule of the page (invalid UTF-8, a malformed id, ...).
Result<std::string> ManifestToJson(const Manifest& manifest);

// Strict: kCorrupt for a member twice, another type, a number out of range, too deep nesting, or
// anything else that the page does not allow. Unknown members are ignored.
Result<Manifest> ManifestFromJson(std::string_view json);

// The rules of the page on values, sections aside. kInvalidArgument.
Status CheckManifest(const Manifest& manifest);

inline constexpr int kMaxManifestDepth = 8;
inline constexpr size_t kMaxIdentityFields = 1024;
inline constexpr size_t kMaxProbeSuffix = 64;
inline constexpr size_t kMaxTailLoss = 64;

}  // namespace kvgraft::artifact
