#pragma once
// Guesses what a mistyped word should be.

#include <string>
#include <vector>

namespace tarantella::launch {

/// The first word of `known` that begins with `word`, if that has more than three letters; else the nearest by edit
/// distance; empty if none is near. Pure.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace tarantella::launch
