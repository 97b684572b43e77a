#pragma once
// Ranges of tags, which keep the messages of plans apart. Rank 0 gives them out for all nodes.

#include <map>
#include <mutex>
#include <optional>

#include "collective/across/bridge.h"

namespace tarantella::collective::across {

/// Thread-safe. A range is used again as late as possible: a node may still send what nobody awaits any more.
class Tags {
 public:
  /// The first tag of `count` consecutive ones; nothing if there are not so many.
  std::optional<transport::Tag> take(size_t count) {
    const std::lock_guard lock(mutex_);
    for (const transport::Tag from : {next_, kFirstTag}) {
      transport::Tag begin = from;
      for (const auto& [first, end] : taken_) {
        if (end <= begin) continue;
        if (first >= begin + count) break;
        begin = end;
      }
      if (begin + count > transport::kTags) continue;
      next_ = begin + static_cast<transport::Tag>(count);
      taken_[begin] = next_;
      return begin;
    }
    return std::nullopt;
  }
  void give_back(transport::Tag first) {
    const std::lock_guard lock(mutex_);
    taken_.erase(first);
  }

 private:
  std::mutex mutex_;
  transport::Tag next_ = kFirstTag;
  std::map<transport::Tag, transport::Tag> taken_;  ///< first tag -> the one after the last
};

}  // namespace tarantella::collective::across
