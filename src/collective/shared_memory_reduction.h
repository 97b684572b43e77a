#pragma once
// Sums buckets in the memory of one node.
//
// Each rank copies its values into its input area, except those that only it reads. When all ranks have started a
// bucket, each sums its slice of all inputs, in rank order, into the one result area. When all slices are summed, the
// bucket is done: no rank reads the inputs any more, and the results stay until every rank has started the bucket
// again.
//
// In a large group, a rank that finds all ranks of a flag group (see flag_groups.h) there says so in a word of the
// flag group, and the others need not read the word of each. The word is a shortcut: where it is not set, they read
// those of the flag group itself.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/bucket_reduction.h"
#include "collective/node_group.h"

namespace tarantella::collective {

class SharedMemoryReduction final : public BucketReduction {
 public:
  /// The bytes of the areas of `ranks` ranks for buckets of so many bytes together; UINT64_MAX: more than any machine
  /// has.
  static uint64_t memory_bytes(size_t bytes, int ranks);

  /// Collective. `buckets` are consecutive ranges of an area. Errors: kOutOfMemory, on all ranks.
  static Result<std::unique_ptr<SharedMemoryReduction>> create(NodeGroup& group, std::vector<Bucket> buckets,
                                                               const std::string& name);

  void put(size_t bucket, Range range, const std::byte* values,
           const std::shared_ptr<const void>& owner) override;
  void start(size_t bucket, uint32_t training_step) override;
  Advanced advance(size_t bucket) override;
  std::optional<Awaited> awaited(size_t bucket) const override;
  const std::byte* result() const override { return area(group_->size()); }
  /// result(), which the leader completes in a job on several nodes.
  std::byte* sums() { return area(group_->size()); }
  std::shared_ptr<void> memory() const override { return region_.owner; }
  /// The training step in which the ranks have started a bucket that all have started; 0: none of them has said it.
  uint32_t training_step(size_t bucket) const;
  void begin_polling() override;
  void end_polling() override;

 private:
  enum class Phase : uint32_t { kFilling, kAwaitingInputs, kAwaitingSums };
  struct State {
    std::atomic<uint32_t> generation{1};
    std::atomic<Phase> phase{Phase::kFilling};
    Range unpadded_range{};  ///< the bucket without padding, if one put() had all of it; else empty
    /// The caller's values of `unpadded_range`; nullptr: zeros, in the area.
    const std::byte* values = nullptr;
  };
  /// What a rank tells the others about a bucket, in a word that holds the generation.
  enum class Flag : size_t { kArrived = 0, kReduced = 1 };

  SharedMemoryReduction(NodeGroup& group, std::vector<Bucket> buckets, std::string name,
                        transport::Region region);

  /// The input area of `rank`; area(size) is the result area.
  std::byte* area(int rank) const;
  /// One of the rows that `rank` writes and all ranks read, with one word per bucket.
  Word* row(int rank, size_t index) const;
  Word& flag_word(Flag flag, int rank, size_t bucket) const {
    return row(rank, static_cast<size_t>(flag))[bucket];
  }
  /// Set by ranks that have found that all ranks of `flag_group` have published `flag`.
  Word& flag_group_word(Flag flag, size_t flag_group, size_t bucket) const {
    return row(group_->size(), 2 * flag_group + static_cast<size_t>(flag))[bucket];
  }
  /// The number of threads of `rank` between begin_polling() and end_polling().
  Word& polling(int rank) const { return *row(rank, 2); }
  /// The training step in which `rank` has started a bucket: written before Flag::kArrived.
  Word& started_in(int rank, size_t bucket) const { return row(rank, 3)[bucket]; }
  /// The part of a bucket that this rank sums.
  Range slice(const Bucket& bucket) const;
  void publish(Flag flag, size_t bucket, uint32_t generation);
  /// The first rank, from this rank's flag group on, that has not published `flag` for `generation`; -1 if all have.
  int first_behind(Flag flag, size_t bucket, uint32_t generation) const;
  /// Fails the group if other ranks have started the bucket in another training step than this one. False: it has
  /// failed.
  bool check_training_steps(size_t bucket);
  void reduce(size_t bucket);

  const std::shared_ptr<NodeGroup> group_;
  const std::vector<Bucket> buckets_;
  const std::string name_;
  const transport::Region region_;
  std::vector<State> states_;
};

}  // namespace tarantella::collective
