#pragma once

namespace tarantella {

/// The number of forks between the first process and this one. Objects created at another number belong to a parent,
/// whose threads do not exist here. Thread-safe; getpid(2) would take as long as a small message.
int fork_count();

}  // namespace tarantella
