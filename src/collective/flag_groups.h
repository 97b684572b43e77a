#pragma once
// How the ranks of a large group exchange flags: in flag groups, of ranks whose cores share a cache, or are close. A
// rank reads the cache lines of its own flag group and one line of each other one, in place of a line of every rank.
// Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarantella::collective {

class FlagGroups {
 public:
  /// One flag group of `ranks` ranks.
  explicit FlagGroups(int ranks);
  /// Each flag group has at most ceil(sqrt(N)) of N ranks. Two consecutive flag groups together have more, so there are
  /// few. `caches[rank]` is equal for ranks whose cores share a cache: they are in one flag group, or in as few as
  /// possible.
  explicit FlagGroups(const std::vector<uint64_t>& caches);

  size_t count() const { return groups_.size(); }
  /// The ranks of a flag group, which has at least one.
  const std::vector<int>& ranks(size_t group) const { return groups_[group]; }
  /// The number of ranks in the largest flag group.
  size_t largest() const;
  size_t group_of(int rank) const { return places_[static_cast<size_t>(rank)].group; }
  /// The place of `rank` in ranks(group_of(rank)).
  size_t index_of(int rank) const { return places_[static_cast<size_t>(rank)].place; }
  /// The rank of `group` that tells `rank` about it. About as many ranks rely on each.
  int relay_rank(int rank, size_t group) const {
    return groups_[group][index_of(rank) % groups_[group].size()];
  }

 private:
  struct Place {
    size_t group;
    size_t place;
  };

  void number();

  std::vector<std::vector<int>> groups_;
  std::vector<Place> places_;  ///< per rank
};

}  // namespace tarantella::collective
