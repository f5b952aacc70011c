#include "kvgraft/core/status.h"

#include <cstdio>
#include <cstdlib>

namespace kvgraft {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kMismatch:
      return "mismatch";
    case Code::kExhausted:
      return "exhausted";
    case Code::kIo:
      return "io";
    case Code::kInternal:
      return "internal";
    case Code::kCancelled:
      return "cancelled";
  }
  return "internal";
}

int ExitCode(Code code) {
  switch (code) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
      return 2;
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kMismatch:
      return 3;
    case Code::kCancelled:
      return 130;
    case Code::kNotFound:
    case Code::kExhausted:
    case Code::kIo:
    case Code::kInternal:
      return 1;
  }
  return 1;
}

int HttpStatus(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kMismatch:
      return 422;
    case Code::kExhausted:
      return 507;
    case Code::kCancelled:
      return 499;
    case Code::kIo:
    case Code::kInternal:
      return 500;
  }
  return 500;
}

Status Status::Annotate(const std::string& where) const {
  if (ok()) return *this;
  return Status(code_, where + ": " + message_);
}

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "kvgraft: internal check failed at %s:%d: %s\n", file, line, what);
  std::abort();
}

}  // namespace kvgraft
