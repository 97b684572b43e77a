#pragma once
// Sums buckets in the memory of one node.
//
// Each rank copies its values into its input area, except those that only it reads. When all ranks have started a
// bucket, each sums its slice of all inputs, in rank order, into the one result area. When all slices are summed, the
// bucket is done: no rank reads the inputs any more, and the results stay until every rank has started the bucket
// again.
//
// In a large group, a rank that finds all ranks of a block (see blocks.h) there says so in a word of the block, and the
// others need not look at each of them. The word is a shortcut: where it is not set, they look at the block itself.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/bucket_reduction.h"
#include "collective/group.h"

namespace tarantella::collective {

class NodeReduction final : public BucketReduction {
 public:
  /// Collective. kOutOfMemory on all ranks if one has too little memory for areas of `bytes`; kInvalidArgument if no
  /// machine has enough. `name` says in errors what they are for.
  static Status check_room(Group& group, size_t bytes, const std::string& name);

  /// Collective. `buckets` are consecutive ranges of an area. Errors: kOutOfMemory, on all ranks.
  static Result<std::unique_ptr<NodeReduction>> create(Group& group, std::vector<Bucket> buckets,
                                                       const std::string& name);

  void put(size_t bucket, Range part, const std::byte* values, Kept kept) override;
  void start(size_t bucket, uint32_t number) override;
  Advanced advance(size_t bucket) override;
  std::optional<Awaited> awaited(size_t bucket) const override;
  const std::byte* result() const override { return area(group_->size()); }
  std::shared_ptr<void> memory() const override { return region_.owner; }
  /// The number with which the ranks have started a bucket that all have started; 0: none of them has one.
  uint32_t number(size_t bucket) const;
  void begin_looking() override;
  void end_looking() override;

 private:
  enum class Phase : uint32_t { kFilling, kArrived, kReduced };
  struct State {
    std::atomic<uint32_t> step{1};
    std::atomic<Phase> phase{Phase::kFilling};
    Range whole{};  ///< the bucket without padding, if one put() had all of it; else empty
    const std::byte* values = nullptr;  ///< the caller's values of `whole`; nullptr: zeros, in the area
  };
  /// What a rank signals about a bucket, together with the step's number.
  enum class Signal : size_t { kArrived = 0, kReduced = 1 };

  NodeReduction(Group& group, std::vector<Bucket> buckets, std::string name, transport::Region region);

  /// The input area of `rank`; area(size) is the result area.
  std::byte* area(int rank) const;
  /// One of the rows that `rank` writes and all ranks read, with one word per bucket.
  Word* row(int rank, size_t number) const;
  Word& signalled(Signal signal, int rank, size_t bucket) const {
    return row(rank, static_cast<size_t>(signal))[bucket];
  }
  /// Set by ranks that have found that all ranks of `block` have sent `signal`.
  Word& signalled_all(Signal signal, size_t block, size_t bucket) const {
    return row(group_->size(), 2 * block + static_cast<size_t>(signal))[bucket];
  }
  /// The number of threads of `rank` between begin_looking() and end_looking().
  Word& looking(int rank) const { return *row(rank, 2); }
  /// The number with which `rank` has started a bucket: written before Signal::kArrived.
  Word& started_with(int rank, size_t bucket) const { return row(rank, 3)[bucket]; }
  /// The part of a bucket that this rank sums.
  Range slice(const Bucket& bucket) const;
  void signal(Signal signal, size_t bucket, uint32_t step);
  /// The first rank, from this rank's block on, that has not sent `signal` for `step`; -1 if all have.
  int first_behind(Signal signal, size_t bucket, uint32_t step) const;
  /// Fails the group if other ranks have started the bucket with another number than this one. False: it has failed.
  bool compare_numbers(size_t bucket);
  void reduce(size_t bucket);

  const std::shared_ptr<Group> group_;
  const std::vector<Bucket> buckets_;
  const std::string name_;
  const transport::Region region_;
  std::vector<State> states_;
};

}  // namespace tarantella::collective
