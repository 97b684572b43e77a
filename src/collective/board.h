#pragma once
// The board on which a rank posts what it has done. Others can wait for a post without the rank's help.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "transport/memory.h"

namespace tarantella::collective {

/// Lies in shared memory, zeroed at first. One writer; any number of readers at any time.
class Board {
 public:
  /// How many entries are kept: the newest.
  static constexpr uint32_t kEntries = 1024;

  /// Posts that `key` was done with result `value`, after the writer's `step`-th collective call.
  void post(uint64_t key, uint32_t value, uint32_t step) {
    Entry& entry = entries_[count_.load(std::memory_order_relaxed) % kEntries];
    entry.key.store(key, std::memory_order_release);
    entry.value.store(value, std::memory_order_release);
    entry.step.store(step, std::memory_order_release);
    count_.fetch_add(1, std::memory_order_seq_cst);
  }

  struct Found {
    std::optional<uint32_t> value;
    bool lost = false;  ///< the entry may have been dropped: there were too many since `step`
  };

  /// The value of the `nth` entry (from 1) for `key` at `step` or later, if there is one.
  Found find(uint64_t key, uint32_t step, uint32_t nth) const {
    const uint32_t end = count_.load(std::memory_order_seq_cst);
    bool lost = end >= kEntries;
    for (uint32_t i = oldest(end); i != end; ++i) {
      const std::optional<Post> post = read(i);
      if (!post) continue;
      const bool recent = static_cast<int32_t>(post->step - step) >= 0;
      lost = lost && recent;
      if (recent && post->key == key && --nth == 0) return {post->value, false};
    }
    return {std::nullopt, lost};
  }

  /// The value of the newest entry for `key`, if there is one.
  std::optional<uint32_t> last(uint64_t key) const {
    const uint32_t end = count_.load(std::memory_order_seq_cst);
    std::optional<uint32_t> newest;
    for (uint32_t i = oldest(end); i != end; ++i) {
      const std::optional<Post> post = read(i);
      if (post && post->key == key) newest = post->value;
    }
    return newest;
  }

  /// Changes with every post.
  transport::Word& count() { return count_; }

 private:
  struct Entry {
    std::atomic<uint64_t> key;
    std::atomic<uint32_t> value;
    transport::Word step;
  };
  struct Post {
    uint64_t key;
    uint32_t value;
    uint32_t step;
  };

  /// The first of `end` entries that is kept. The slot of the one before may be overwritten at this moment.
  static uint32_t oldest(uint32_t end) { return end >= kEntries ? end - kEntries + 1 : 0; }

  /// Entry number `i`, unless it was overwritten meanwhile.
  std::optional<Post> read(uint32_t i) const {
    const Entry& entry = entries_[i % kEntries];
    const Post post{entry.key.load(std::memory_order_acquire), entry.value.load(std::memory_order_acquire),
                    entry.step.load(std::memory_order_acquire)};
    if (count_.load(std::memory_order_acquire) - i >= kEntries) return std::nullopt;
    return post;
  }

  transport::Word count_;
  std::array<Entry, kEntries> entries_;
};

}  // namespace tarantella::collective
