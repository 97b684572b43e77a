#pragma once
// The launcher's own lines on stderr, and its exit codes.

#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// Exit code for an invalid command line.
constexpr int kUsageError = 2;
/// Exit code if the machine, not the script, kept the job from running.
constexpr int kLaunchError = 1;
/// Exit code if a program cannot be started, as in a shell.
constexpr int kCannotRun = 127;

/// `line` as the launcher prints it: "tarantella: <line>\n".
std::string message_line(const std::string& line);

/// Prints `line` on stderr in one write(2). Blocks while stderr is full.
void print_message(const std::string& line);

/// Prints why nothing runs, unless the message is empty. Returns the exit code: kUsageError for kInvalidArgument, else
/// `otherwise`.
int print_error(const Status& status, int otherwise);

/// `text` with control characters, which would break a one-line message, replaced by '?'.
std::string printable(const std::string& text);

/// A list as ranges, "0-3,8,10-11". The numbers must be in ascending order.
std::string ranges(const std::vector<int>& numbers);

}  // namespace tarantella::launch
