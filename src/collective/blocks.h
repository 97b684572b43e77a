#pragma once
// How the ranks of a large group meet: in blocks of ranks whose cores are close. A rank looks at the cache lines of its
// own block and at one line of each other block, in place of a line of every rank. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarantella::collective {

class Blocks {
 public:
  /// One block of `ranks` ranks.
  explicit Blocks(int ranks);
  /// Blocks of at most ceil(sqrt(N)) of N ranks; two neighbouring ones have more together. `caches[rank]` is equal for
  /// ranks whose cores share a cache: they are in one block, or in as few as possible.
  explicit Blocks(const std::vector<uint64_t>& caches);

  size_t count() const { return blocks_.size(); }
  /// The ranks of a block, which has at least one.
  const std::vector<int>& ranks(size_t block) const { return blocks_[block]; }
  /// The number of ranks in the largest block.
  size_t largest() const;
  size_t block_of(int rank) const { return places_[static_cast<size_t>(rank)].block; }
  /// The place of `rank` in ranks(block_of(rank)).
  size_t place_of(int rank) const { return places_[static_cast<size_t>(rank)].place; }
  /// The rank of `block` that tells `rank` about it. About as many ranks rely on each.
  int counterpart(int rank, size_t block) const {
    return blocks_[block][place_of(rank) % blocks_[block].size()];
  }

 private:
  struct Place {
    size_t block;
    size_t place;
  };

  void number();

  std::vector<std::vector<int>> blocks_;
  std::vector<Place> places_;  ///< per rank
};

}  // namespace tarantella::collective
