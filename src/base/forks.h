#pragma once

namespace tarantella {

/// How many forks lie between the first process and this one: what was made at another number belongs to a parent,
/// whose threads do not exist here. Thread-safe; asking the kernel who we are would take as long as a small message.
int forks();

}  // namespace tarantella
