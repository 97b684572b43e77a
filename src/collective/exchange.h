#pragma once
// One round of a blocking collective: every rank puts at most one chunk on its stage, waits for the others, and
// reads theirs. Two stages a rank are taken in turn, so one wait a round is enough: a rank writes a stage again
// only after every rank has passed the next round, and so has read it.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/dtype.h"
#include "collective/group.h"

namespace tarantella::collective {

enum class Operation : uint32_t { kAllreduce = 1, kBroadcast = 2, kAllgather = 3, kBarrier = 4 };

/// What a rank calls; all ranks must call the same, and a difference is found before any data is used.
struct Call {
  Operation operation;
  DType dtype;
  uint64_t count;
  int root;
  std::string name;
};

/// One thread at a time. The group must outlive it.
class Exchange {
 public:
  static constexpr size_t kChunk = 512 * 1024;  ///< bytes, a multiple of every element size

  /// Collective.
  static Result<std::unique_ptr<Exchange>> create(Group& group);

  Group& group() { return group_; }
  /// This rank's stage for the coming round: kChunk bytes.
  std::span<std::byte> own() const { return stage(group_.rank(), round_ + 1); }
  /// Collective. Shows own() to all and waits for theirs. kMismatch, on all ranks, if the calls differ.
  Status advance(const Call& call);
  /// What `rank` had on its stage in the round that just ended; valid until the next advance().
  std::span<const std::byte> of(int rank) const { return stage(rank, round_); }

 private:
  struct Label;

  Exchange(Group& group, transport::Region region) : group_(group), region_(std::move(region)) {}
  std::byte* place(int rank, uint64_t round) const;
  std::span<std::byte> stage(int rank, uint64_t round) const;

  Group& group_;
  const transport::Region region_;
  uint64_t round_ = 0;
};

}  // namespace tarantella::collective
