#pragma once
// The errors that ranks have reported, and which of them are one and the same.

#include <map>

#include "launch/reports.h"

namespace tarantella::launch {

/// The first report of each kind and rank. Pure.
class Failures {
 public:
  void add(const Report& report);
  /// The rank's report of the kind, or nullptr.
  const Report* find(int rank, Report::Kind kind) const;
  /// Whether two ranks reported the same error, but for their numbers and addresses.
  bool same(int one, int other) const;
  /// How many other ranks reported the error of `rank`.
  int more(int rank) const;

 private:
  std::map<int, Report> failed_, lost_;
};

}  // namespace tarantella::launch
