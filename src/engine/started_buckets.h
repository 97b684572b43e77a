#pragma once
// The buckets of a plan that were started and are not summed yet.

#include <cstddef>
#include <vector>

namespace tarantella::engine {

/// A set of buckets in the order in which they were added. Adding and removing take the same time however many there
/// are, and a walk over all of them takes no time for the other buckets of the plan. Not thread-safe.
class StartedBuckets {
 public:
  /// For buckets below `buckets`.
  explicit StartedBuckets(size_t buckets) : links_(buckets + 1, {buckets, buckets}), end_(buckets) {}

  /// `bucket` must not be in the set.
  void add(size_t bucket) {
    const size_t last = links_[end_].previous;
    links_[bucket] = {last, end_};
    links_[last].next = bucket;
    links_[end_].previous = bucket;
  }
  /// `bucket` must be in the set.
  void remove(size_t bucket) {
    const auto [previous, next] = links_[bucket];
    links_[previous].next = next;
    links_[next].previous = previous;
  }

  /// The oldest, or end().
  size_t first() const { return links_[end_].next; }
  /// The one that was added after `bucket`, or end().
  size_t next(size_t bucket) const { return links_[bucket].next; }
  size_t end() const { return end_; }

 private:
  struct Link {
    size_t previous;
    size_t next;
  };
  std::vector<Link> links_;  ///< one per bucket, and one that closes the ring
  const size_t end_;
};

}  // namespace tarantella::engine
