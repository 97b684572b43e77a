#pragma once
// A node that is one process: ranks are threads, memory is the heap, sleeping is a condition variable. It lets a
// test decide what has become of a rank, how much memory there is and whether ranks spin, and counts wake-ups.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "transport/node_memory.h"

namespace tarantella::transport {

/// Thread-safe. Must outlive the memory that it gives out.
class FakeNode {
 public:
  explicit FakeNode(int size) : FakeNode(nullptr, std::vector<int>(static_cast<size_t>(size)), size) {
    std::iota(members_.begin(), members_.end(), 0);
  }
  /// One node of several: its ranks have the numbers `job_ranks` in a job of `job_size`.
  FakeNode(const std::vector<int>& job_ranks, int job_size) : FakeNode(nullptr, job_ranks, job_size) {}

  std::unique_ptr<NodeMemory> memory(int rank);
  /// The node of some of its ranks; the k-th of all.
  FakeNode& group(size_t k, const std::vector<int>& ranks);

  /// The other ranks will find that the process of `rank` has ended.
  void end(int rank);
  /// Whether the memory that `rank` was given has gone; what its threads did before has happened then.
  bool has_departed(int rank) const;
  /// How often `rank` has called wake().
  size_t wakes(int rank) const;
  /// The bytes that the ranks of the node, not of its groups, have mapped.
  uint64_t mapped() const;
  void set_available_bytes(uint64_t bytes);
  /// From here on map() fails for `rank`.
  void refuse_maps(int rank);
  /// The answer of dedicated_cores(), false at first. To be set before memory() and group().
  void set_dedicated_cores(bool dedicated) { dedicated_cores_ = dedicated; }
  /// The answers of cache() on each rank, 0 at first. To be set before memory() and group().
  void set_caches(const std::vector<uint64_t>& caches) { caches_ = caches; }
  /// Sleeps that nobody wakes last at least this long. To be set before memory().
  void set_least_sleep(Duration time) { least_sleep_ = time; }

 private:
  friend class FakeMemory;

  FakeNode(const FakeNode* parent, const std::vector<int>& members, int job_size)
      : parent_(parent),
        members_(members),
        job_size_(job_size),
        ended_(members.size()),
        departed_(members.size()),
        refused_(members.size()),
        wakes_(members.size()),
        caches_(members.size()),
        dedicated_cores_(parent != nullptr && parent->dedicated_cores_) {}
  bool has_ended(int rank) const;
  void leave(int rank);
  int job_rank(int rank) const;
  uint64_t cache(int rank) const;

  const FakeNode* const parent_;
  std::vector<int> members_;  ///< their ranks in the parent, or in the job
  const int job_size_;
  mutable std::mutex mutex_;
  std::map<std::pair<const Word*, uint32_t>, std::condition_variable> slept_on_;  ///< by word and bits
  std::vector<bool> ended_;
  std::vector<bool> departed_;
  std::vector<bool> refused_;
  std::vector<size_t> wakes_;
  std::vector<uint64_t> caches_;  ///< of the node of all ranks
  std::vector<std::shared_ptr<std::byte>> regions_;
  uint64_t mapped_ = 0;  ///< bytes of regions_, as asked for
  std::vector<std::unique_ptr<FakeNode>> groups_;
  uint64_t available_bytes_ = UINT64_MAX;
  bool dedicated_cores_;
  Duration least_sleep_{};
};

}  // namespace tarantella::transport
