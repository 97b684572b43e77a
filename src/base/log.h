#pragma once
// The few lines that the core itself says. Thread-safe; one write(2) a line, so ranks do not mix within one.

#include <string>

namespace tarantella {

/// Prints "tarantella: WARNING: <message>" on stderr. Drops the line where stderr has no room, as a full pipe or a
/// terminal that was stopped with Ctrl-S, or no reader: whoever says it must not wait, or others find it stuck.
void log_warning(const std::string& message);

}  // namespace tarantella
