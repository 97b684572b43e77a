#pragma once
// Text in an array, as it lies in shared memory and in messages.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace tarantella {

/// Writes as much of `text` as there is room for, and a zero. `to` is not empty.
inline void write_text(std::string_view text, std::span<char> to) {
  const size_t length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = '\0';
}

}  // namespace tarantella
