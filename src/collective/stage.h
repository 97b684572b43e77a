#pragma once
// One round of a blocking collective: every rank puts at most one chunk on its stage, waits for the others, and
// reads theirs. Two stages a rank are taken in turn, so one wait a round is enough: a rank writes a stage again
// only after every rank has passed the next round, and so has read it. What little data there is travels in the
// cache line that says that the rank has come.

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/agreement.h"
#include "collective/group.h"

namespace tarantella::collective {

/// One thread at a time. The group must outlive it.
class Stage {
 public:
  /// Bytes, a multiple of every element size and cache line; both stages fit into the nearest caches.
  static constexpr size_t kChunk = 128 * 1024;

  /// Collective.
  static Result<std::unique_ptr<Stage>> create(Group& group);

  Group& group() { return group_; }
  int rank() const { return group_.rank(); }
  size_t size() const { return inputs_.size(); }

  /// This rank's stage for `bytes` (at most kChunk) in the coming round.
  std::byte* own(size_t bytes) const { return data(rank(), round_ + 1, bytes); }
  /// Copies `bytes` to own(bytes).
  void put(const std::byte* from, size_t bytes);
  /// Collective. Shows own() to all and waits for theirs. kMismatch, on all ranks, if the calls differ.
  Status agree(const Call& call);
  /// What `rank` had on its stage, `bytes` of it, in the round that just ended; valid until the next agree().
  const std::byte* of(size_t rank, size_t bytes) const { return data(static_cast<int>(rank), round_, bytes); }
  /// As of(), by rank, from `offset` on, but this rank's own data come from `own`. Valid until the next call.
  const std::byte* const* inputs(const std::byte* own, size_t bytes, size_t offset = 0);

 private:
  struct Slot;

  Stage(Group& group, transport::Region region);
  Slot& slot(int rank, uint32_t round) const;
  std::byte* data(int rank, uint32_t round, size_t bytes) const;

  Group& group_;
  const transport::Region region_;
  std::vector<const std::byte*> inputs_;
  uint32_t round_ = 0;
};

}  // namespace tarantella::collective
