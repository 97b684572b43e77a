#pragma once
// Guesses which word a mistyped one stands for.

#include <string>
#include <vector>

namespace tarantella::launch {

/// The first word of `known` that begins with `word`, if that has more than three letters; else the nearest by edit
/// distance; empty if none is near. Pure.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace tarantella::launch
