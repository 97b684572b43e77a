#pragma once
// The sum over ranks of the same buckets of values, step after step. The place for every way to reduce gradients:
// in a node's memory (node_reduction.h), and later between nodes or on devices.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/dtype.h"
#include "collective/slices.h"

namespace tarantella::collective {

/// A range of an area that is summed as one. An area holds all values of one rank, or all sums.
struct Bucket {
  static constexpr size_t kAlignment = 64;

  DType dtype;
  size_t offset;  ///< bytes from the start of an area, a multiple of kAlignment
  size_t bytes;   ///< a multiple of kAlignment: padding at the end of what is in it is summed, too

  Range range() const { return {offset, offset + bytes}; }
};

/// Each bucket goes through its steps on its own: put() of all its values, start(), advance() until it is kDone. All
/// ranks take the same steps of each bucket, the buckets in any order. Thread-safe, except for advance(); never blocks.
class BucketReduction {
 public:
  enum class Advanced {
    kNothing,
    kSummed,  ///< this rank has done its part; there may be more to do
    kDone,    ///< the bucket's sums are in result(); its next step may begin
  };
  struct Awaited {
    int rank;
    uint32_t wait;  ///< tells one wait of the bucket from the next
  };

  virtual ~BucketReduction() = default;

  /// Takes this rank's values of `part` of the bucket, bytes of an area, which must stay as they are until it is done.
  virtual void put(size_t bucket, Range part, const std::byte* values) = 0;
  /// All of this rank's values are there: the others may use them.
  virtual void start(size_t bucket) = 0;
  /// Does the next thing that is due in a bucket, if there is one. One thread at a time for all buckets.
  virtual Advanced advance(size_t bucket) = 0;
  /// The rank without which a bucket that was started does not go on, if there is one.
  virtual std::optional<Awaited> awaited(size_t bucket) const = 0;

  /// The area of all sums. A bucket's may be read until every rank has started the bucket's next step.
  virtual const std::byte* result() const = 0;
  /// Keeps result() mapped while a copy lives.
  virtual std::shared_ptr<void> memory() const = 0;

  /// Between the two, calls of advance() follow one another, so that no rank need wake this one's progress thread.
  virtual void begin_looking() = 0;
  virtual void end_looking() = 0;
};

}  // namespace tarantella::collective
