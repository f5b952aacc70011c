// Errors as values. Every function whose outcome depends on data, files, the network or an engine
// returns Status or Result<T>; a message says what failed, where, what was expected, what was
// found, and what to do.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace kvgraft {

// The kinds of failure. One table (ExitCode, HttpStatus) maps them to what programs see.
enum class Code {
  kOk,
  kInvalidArgument,  // the caller asked for something that cannot be
  kNotFound,         // no such artifact, model, file or name
  kCorrupt,          // bytes are broken: never loaded
  kUnsupported,      // sound, but newer than this reader or not handled by this build
  kMismatch,         // sound, but captured for another model or configuration
  kExhausted,        // no room: context, disk, byte budget
  kIo,               // the operating system refused
  kInternal,         // our own bug
  kCancelled,        // interrupted by the user; nothing is lost
};

// Lower-case name, for example "mismatch"; stable, used in --json errors.
const char* CodeName(Code code);

// Process exit code: 0 ok, 1 failure, 2 usage (kInvalidArgument), 3 refused as incompatible or
// damaged (kMismatch, kCorrupt, kUnsupported), 130 interrupted.
int ExitCode(Code code);

// HTTP status for the same failures: 400, 404, 422 (corrupt, mismatch, unsupported), 507, 500, 499.
int HttpStatus(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return Status(); }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // Puts `where` before the message ("capture: ..."), keeping the code. No effect on success.
  Status Annotate(const std::string& where) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

// Either a value or a Status that is not ok. value() on an error is our own bug and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit by design
    if (status_.ok()) CheckFailed(__FILE__, __LINE__, "Result made from an ok Status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return Checked(); }
  const T& value() const& { return Checked(); }
  T value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return Checked(); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &Checked(); }

 private:
  T& Checked() {
    if (!value_.has_value()) CheckFailed(__FILE__, __LINE__, status_.message().c_str());
    return *value_;
  }
  const T& Checked() const { return const_cast<Result*>(this)->Checked(); }

  std::optional<T> value_;
  Status status_;
};

}  // namespace kvgraft

// For our own bugs only, never for data.
#define KVG_CHECK(cond) ((cond) ? (void)0 : ::kvgraft::CheckFailed(__FILE__, __LINE__, #cond))

#define KVG_CONCAT_INNER(a, b) a##b
#define KVG_CONCAT(a, b) KVG_CONCAT_INNER(a, b)

// KVG_RETURN(expr): leaves the function when `expr`, a Status, is an error.
#define KVG_RETURN(expr)                       \
  do {                                         \
    ::kvgraft::Status kvg_status_ = (expr);    \
    if (!kvg_status_.ok()) return kvg_status_; \
  } while (0)

// KVG_ASSIGN(lhs, expr): `expr` is a Result<T>; on success moves the value into lhs (a declaration
// or an existing object), otherwise returns the error. Parenthesise an lhs that has a comma.
#define KVG_ASSIGN(lhs, ...) KVG_ASSIGN_IMPL(KVG_CONCAT(kvg_result_, __LINE__), lhs, __VA_ARGS__)
#define KVG_ASSIGN_IMPL(tmp, lhs, ...) \
  auto tmp = (__VA_ARGS__);            \
  if (!tmp.ok()) return tmp.status();  \
  lhs = std::move(tmp).value()
