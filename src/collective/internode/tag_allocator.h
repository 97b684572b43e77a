#pragma once
// Allocates ranges of tags, which keep the messages of plans apart. Rank 0 allocates for all nodes; each leader retires
// the tags with which an exchange of its own was given up: messages of it may still be on their way.

#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "collective/internode/leader_link.h"

namespace tarantella::collective::internode {

/// Thread-safe.
class TagAllocator {
 public:
  /// The first tag of `count` consecutive ones; nothing if there are not so many.
  std::optional<transport::Tag> allocate(size_t count) {
    const std::lock_guard lock(mutex_);
    for (const transport::Tag from : {next_, kFirstPlanTag}) {
      transport::Tag begin = from;
      for (const auto& [first, end] : allocated_) {
        if (end <= begin) continue;
        if (first >= begin + count) break;
        begin = end;
      }
      if (begin + count > transport::kTags) continue;
      next_ = begin + static_cast<transport::Tag>(count);
      allocated_[begin] = next_;
      return begin;
    }
    return std::nullopt;
  }
  void release(transport::Tag first) {
    const std::lock_guard lock(mutex_);
    allocated_.erase(first);
  }
  /// As allocate(), of a range that rank 0 has allocated.
  void reserve(transport::Tag first, size_t count) {
    const std::lock_guard lock(mutex_);
    allocated_[first] = first + static_cast<transport::Tag>(count);
  }
  /// Whether one of `count` consecutive tags is allocated or reserved.
  bool overlaps(transport::Tag first, size_t count) {
    const std::lock_guard lock(mutex_);
    for (const auto& [begin, end] : allocated_) {
      if (begin < first + count && end > first) return true;
    }
    return false;
  }
  /// No later exchange may use `tag`.
  void retire(transport::Tag tag) {
    const std::lock_guard lock(mutex_);
    retired_.insert(tag);
  }
  /// Whether one of `count` consecutive tags is retired here.
  bool has_retired(transport::Tag first, size_t count) {
    const std::lock_guard lock(mutex_);
    const auto next = retired_.lower_bound(first);
    return next != retired_.end() && *next < first + count;
  }

 private:
  std::mutex mutex_;
  transport::Tag next_ = kFirstPlanTag;
  std::map<transport::Tag, transport::Tag> allocated_;  ///< first tag -> the one after the last
  std::set<transport::Tag> retired_;
};

}  // namespace tarantella::collective::internode
