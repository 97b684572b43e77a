#pragma once
// Text in an array, as it lies in shared memory and in messages.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace tarantella {

/// Writes as much of `text` as there is room for, and a zero.
template <size_t kSize>
void write_text(std::string_view text, std::array<char, kSize>& to) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = '\0';
}

}  // namespace tarantella
