#pragma once
// Status and Result: how every room reports errors. Value types; no exception leaves a room.

#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace tarantella {

/// The kind of error; the values are those of tnt_code in tarantella.h.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,  ///< an error of the caller; the call had no effect
  kTimeout = 2,          ///< a wait reached its deadline
  kPeerLost = 3,         ///< another rank died, left or aborted the job
  kMismatch = 4,         ///< ranks called different operations, or with different arguments
  kOutOfMemory = 5,      ///< the node has too little memory for a shared region
  kSystem = 6,           ///< a system call failed; the message names it and its errno
  kUnsupported = 7,      ///< this build cannot do it; the call had no effect
};

/// Concatenates anything that can be streamed: text("rank ", 3, " left").
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  /// A kSystem status for the failed call `what`, with the text and number of `error`, an errno value.
  static Status system(const std::string& what, int error);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  /// One line: the cause, the rank or object, and the cure. Empty when ok.
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value, or the Status that tells why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace tarantella

/// Returns from the enclosing function when `expression` yields a Status that is not ok.
#define TNT_RETURN_IF_ERROR(expression)                                             \
  do {                                                                              \
    if (::tarantella::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
