#pragma once
// Buckets summed in the memory of one node.
//
// A rank copies what others read of its values into its own input area. When a bucket was started on every rank, each
// rank sums its slice of all inputs, in rank order, straight into the one result area. When every slice is there, the
// bucket is done. Nobody's input is read any more then, and the results stand until every rank has started the bucket
// again.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/bucket_reduction.h"
#include "collective/group.h"

namespace tarantella::collective {

class NodeReduction final : public BucketReduction {
 public:
  /// Collective: kOutOfMemory on all ranks if areas of `bytes` have no room on one; kInvalidArgument if they have on no
  /// machine. `name` is what they are for.
  static Status check_room(Group& group, size_t bytes, const std::string& name);

  /// Collective. The buckets follow one another. Errors: kOutOfMemory, on all ranks.
  static Result<std::unique_ptr<BucketReduction>> create(Group& group, std::vector<Bucket> buckets,
                                                         const std::string& name);

  void put(size_t bucket, Range part, const std::byte* values) override;
  void start(size_t bucket) override;
  Advanced advance(size_t bucket) override;
  std::optional<Awaited> awaited(size_t bucket) const override;
  const std::byte* result() const override { return area(group_->size()); }
  std::shared_ptr<void> memory() const override { return region_.owner; }
  void begin_looking() override;
  void end_looking() override;

 private:
  enum class Phase : uint32_t { kFilling, kArrived, kReduced };
  struct State {
    std::atomic<uint32_t> step{1};
    std::atomic<Phase> phase{Phase::kFilling};
    Range whole{};                      ///< put as the whole bucket, except for padding
    const std::byte* values = nullptr;  ///< the caller's, of `whole`
  };
  /// What a rank signals of a bucket, with the number of its step.
  enum class Signal : size_t { kArrived = 0, kReduced = 1 };

  NodeReduction(Group& group, std::vector<Bucket> buckets, transport::Region region);

  /// The input area of `rank`; the result area comes after that of the last one.
  std::byte* area(int rank) const;
  /// One of the rows of words, a word a bucket, that `rank` writes and all read.
  Word* row(int rank, size_t number) const;
  Word& signalled(Signal signal, int rank, size_t bucket) const {
    return row(rank, static_cast<size_t>(signal))[bucket];
  }
  /// How many threads of `rank` are between begin_looking() and end_looking().
  Word& looking(int rank) const { return *row(rank, 2); }
  /// What this rank sums of a bucket.
  Range slice(const Bucket& bucket) const;
  void signal(Signal signal, size_t bucket, uint32_t step);
  /// The first rank that has not signalled for `step`, or -1.
  int first_behind(Signal signal, size_t bucket, uint32_t step) const;
  void reduce(size_t bucket);

  const std::shared_ptr<Group> group_;
  const std::vector<Bucket> buckets_;
  const transport::Region region_;
  std::vector<State> states_;
};

}  // namespace tarantella::collective
