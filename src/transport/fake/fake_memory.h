#pragma once
// A node that is one process: ranks are threads, memory is the heap, sleeping is a condition variable. It lets a
// test decide what has become of a rank and how much memory there is.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "transport/memory.h"

namespace tarantella::transport {

/// Thread-safe. Must outlive the memory that it gives out.
class FakeNode {
 public:
  explicit FakeNode(int size) : FakeNode(nullptr, std::vector<int>(static_cast<size_t>(size))) {
    std::iota(members_.begin(), members_.end(), 0);
  }

  std::unique_ptr<Memory> memory(int rank);
  /// The node of some of its ranks; the k-th of all.
  FakeNode& group(size_t k, const std::vector<int>& ranks);

  /// The other ranks will find that the process of `rank` has ended.
  void end(int rank);
  void set_room(uint64_t bytes);

 private:
  friend class FakeMemory;

  FakeNode(const FakeNode* parent, const std::vector<int>& members)
      : parent_(parent), members_(members), ended_(members.size()) {}
  bool has_ended(int rank) const;
  int job_rank(int rank) const;

  const FakeNode* const parent_;
  std::vector<int> members_;  ///< their ranks in the parent
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ended_;
  std::vector<std::shared_ptr<std::byte>> regions_;
  std::vector<std::unique_ptr<FakeNode>> groups_;
  uint64_t room_ = UINT64_MAX;
};

}  // namespace tarantella::transport
