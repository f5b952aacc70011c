// What a JSON library lets pass and a file format must not: members that occur twice, deep nesting,
// a byte order mark, bytes after the end.
#pragma once

#include <string_view>

#include "kvgraft/core/status.h"

namespace kvgraft::artifact {

// Ok when `text` is one JSON value (RFC 8259) in valid UTF-8, without a byte order mark or a NUL
// byte, nested at most max_depth deep, in which no object has a member twice. kCorrupt otherwise.
// Takes memory in proportion to the text.
Status CheckJson(std::string_view text, int max_depth);

}  // namespace kvgraft::artifact
