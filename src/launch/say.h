#pragma once
// The launcher's own lines on stderr; one write a line.

#include <string>
#include <vector>

namespace tarantella::launch {

/// Exit code of every mistake on the command line.
constexpr int kUsageError = 2;
/// Exit code when the machine, not the script, is why the job could not run.
constexpr int kLaunchError = 1;
/// Exit code of a rank whose program cannot be started, as in a shell.
constexpr int kCannotRun = 127;

/// "tarantella: <line>\n".
std::string as_said(const std::string& line);

/// Prints it. Waits where stderr has no room.
void say(const std::string& line);

/// Returns `text` with whatever would break or garble a one-line message (control characters) as '?'.
std::string printable(const std::string& text);

/// "0-3,8,10-11" for numbers in ascending order.
std::string ranges(const std::vector<int>& numbers);

}  // namespace tarantella::launch
