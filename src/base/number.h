#pragma once
// Numbers in texts.

#include <charconv>
#include <string_view>

namespace tarantella {

/// Reads `word` if all of it is a number of decimal digits, perhaps after a minus, that fits. Otherwise returns false,
/// and `number` keeps its value unless only a part of the word was one. Pure.
inline bool to_number(std::string_view word, int& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace tarantella
