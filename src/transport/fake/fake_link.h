#pragma once
// A node that is one process: ranks are threads, memory is the heap, sleeping is a condition variable. It lets a
// test decide what has become of a rank and how much memory there is.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/link.h"

namespace tarantella::transport {

/// Thread-safe. Must outlive its links.
class FakeNode {
 public:
  explicit FakeNode(int size) : presence_(static_cast<size_t>(size), Presence::kHere) {}

  std::unique_ptr<Link> link(int rank);

  /// What the other ranks will find when they look for `rank`.
  void set_presence(int rank, Presence presence);
  void set_room(uint64_t bytes);

 private:
  friend class FakeLink;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Presence> presence_;
  std::vector<std::shared_ptr<std::byte>> regions_;
  uint64_t room_ = UINT64_MAX;
};

}  // namespace tarantella::transport
