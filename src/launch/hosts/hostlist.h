#pragma once
// Hostlists, as Slurm calls them: node[01-04,7] is node01, node02, node03, node04, node7.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// The most hosts of a job; a longer list is taken for a typing error.
constexpr size_t kMostHosts = 65536;

/// Appends the names that `list` stands for: names with any number of bracketed ranges, separated by commas. Numbers
/// are as wide as the first of their range. A name has letters, digits, '.', '-' and '_', begins with a letter or
/// digit, and has at most 253 characters. kInvalidArgument with "column N: " and the mistake; the first character of
/// `list` is in column `column`. Pure.
Status expand_hostlist(std::string_view list, size_t column, std::vector<std::string>& names);

}  // namespace tarantella::launch
