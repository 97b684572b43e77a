#pragma once
// The errors that ranks have reported, and which of them are the same.

#include <map>

#include "launch/output/reports.h"

namespace tarantella::launch {

/// Keeps the first report of each kind from each rank. Pure.
class Failures {
 public:
  void add(const Report& report);
  /// The report of that kind from `rank`; nullptr if there is none.
  const Report* find(int rank, Report::Kind kind) const;
  /// Whether two ranks reported the same error, apart from numbers of ranks and processes, and addresses.
  bool same_error(int one, int other) const;
  /// How many other ranks reported the error of `rank`.
  int others_with_same_error(int rank) const;

 private:
  std::map<int, Report> failed_, lost_;
};

}  // namespace tarantella::launch
