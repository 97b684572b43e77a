#pragma once
// One round of a blocking collective: every rank puts at most one chunk on its stage, waits for the others, and
// reads theirs. Two stages a rank are taken in turn, so one wait a round is enough: a rank writes a stage again
// only after every rank has passed the next round, and so has read it. What little data there is travels in the
// cache line that says that the rank has come.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/reduction.h"
#include "collective/group.h"

namespace tarantella::collective {

enum class Operation : uint32_t {
  kAllreduce = 1,
  kBroadcast = 2,
  kAllgather = 3,
  kBarrier = 4,
  kReduceScatter = 5,
  kAlltoall = 6,
  kSharedAllreduce = 7,
  kGroup = 8,
  kBuffer = 9,
  kPlan = 10,
};

/// What a rank calls; all ranks must call the same, and a difference is found before any data is used.
struct Call {
  Operation operation = Operation::kBarrier;
  std::string_view name{};
  DType dtype = DType::kUInt8;
  Reduction reduction = Reduction::kSum;
  int root = 0;  ///< the job's number
  uint64_t count = 0;
  std::span<const uint64_t> counts{};  ///< more numbers that must be alike
};

/// One thread at a time. The group must outlive it.
class Exchange {
 public:
  /// Bytes, a multiple of every element size and cache line; both stages fit into the nearest caches.
  static constexpr size_t kChunk = 128 * 1024;

  /// Collective.
  static Result<std::unique_ptr<Exchange>> create(Group& group);

  Group& group() { return group_; }
  int rank() const { return group_.rank(); }
  size_t size() const { return inputs_.size(); }

  /// This rank's stage for `bytes` (at most kChunk) in the coming round.
  std::byte* own(size_t bytes) const { return stage(rank(), round_ + 1, bytes); }
  /// Copies `bytes` to own(bytes).
  void put(const std::byte* data, size_t bytes);
  /// Collective. Shows own() to all and waits for theirs. kMismatch, on all ranks, if the calls differ.
  Status advance(const Call& call);
  /// What `rank` had on its stage, `bytes` of it, in the round that just ended; valid until the next advance().
  const std::byte* of(size_t rank, size_t bytes) const {
    return stage(static_cast<int>(rank), round_, bytes);
  }
  /// As of(), by rank, from `offset` on, but this rank's own data come from `own`. Valid until the next call.
  const std::byte* const* inputs(const std::byte* own, size_t bytes, size_t offset = 0);

 private:
  struct Header;
  struct Slot;

  Exchange(Group& group, transport::Region region);
  Slot& slot(int rank, uint32_t round) const;
  std::byte* stage(int rank, uint32_t round, size_t bytes) const;

  Group& group_;
  const transport::Region region_;
  std::vector<const std::byte*> inputs_;
  uint32_t round_ = 0;
};

}  // namespace tarantella::collective
