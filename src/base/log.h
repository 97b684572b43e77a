#pragma once
// The few lines that the core logs. Thread-safe; one write(2) per line, so that lines of ranks do not mix.

#include <string>

namespace tarantella {

/// Prints "tarantella: WARNING: <message>" on stderr. Never blocks, because other ranks would take this one for stuck:
/// drops the line if stderr is full (a pipe, a terminal stopped with Ctrl-S) or has no reader.
void log_warning(const std::string& message);
/// The same without the word WARNING.
void log_line(const std::string& message);

}  // namespace tarantella
