#pragma once
// The few lines that the core itself says. Thread-safe; one write(2) a line, so ranks do not mix within one.

#include <string>

namespace tarantella {

/// Prints "tarantella: WARNING: <message>" on stderr.
void log_warning(const std::string& message);

}  // namespace tarantella
