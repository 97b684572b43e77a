#include "launch/cli/did_you_mean.h"

#include <algorithm>

namespace tarantella::launch {
namespace {

size_t edit_distance(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t column = 0; column <= to.size(); ++column) row[column] = column;
  for (size_t line = 1; line <= from.size(); ++line) {
    size_t diagonal = row[0];
    row[0] = line;
    for (size_t column = 1; column <= to.size(); ++column) {
      const size_t replaced = diagonal + (from[line - 1] == to[column - 1] ? 0 : 1);
      diagonal = row[column];
      row[column] = std::min({replaced, row[column] + 1, row[column - 1] + 1});
    }
  }
  return row[to.size()];
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  for (const std::string& candidate : known) {
    if (word.size() > 3 && candidate.starts_with(word)) return candidate;
  }
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least && distance < candidate.size() - 2) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tarantella::launch
