#pragma once
// Sums the same buckets of values over the ranks in every step. The interface of every way to reduce gradients: in a
// node's memory (node_reduction.h), and later between nodes or on devices.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "collective/slices.h"

namespace tarantella::collective {

/// A range of an area that is summed as a unit. An area holds all values of one rank, or all sums.
struct Bucket {
  static constexpr size_t kAlignment = 64;

  DType dtype;
  size_t offset;  ///< bytes from the start of an area, a multiple of kAlignment
  size_t bytes;   ///< a multiple of kAlignment, with the padding at its end, which is summed too

  Range range() const { return {offset, offset + bytes}; }
};

/// How long a caller keeps values.
enum class Kept {
  kUntilDone,  ///< until they are summed, or the job has failed
  kForGood,    ///< after a failure until the process ends, so that other machines may still receive them
};

/// What the numbers of start() are for. The values are those of tnt_numbers.
enum class Numbers {
  kNone,
  kOfSteps,  ///< compared between nodes, too
  kLast,     ///< as kOfSteps; a rank that has started the buckets starts no others before these are summed
};

/// A rank of the job, and the number with which it has started a bucket.
struct Started {
  int rank;
  uint32_t number;
};

/// kMismatch: the two have started a bucket of `name` with different numbers.
Status different_steps(const std::string& name, Started one, Started other);

/// A step of a bucket is: put() of all its values, start(), then advance() until it returns kDone. Buckets do not wait
/// for one another; all ranks take the same number of steps of each. Thread-safe, except for advance(); never blocks.
class BucketReduction {
 public:
  enum class Advanced {
    kNothing,
    kSummed,  ///< this rank has summed its part; the next advance() may do more
    kMoving,  ///< bytes of other nodes are awaited from here on: the progress thread must wake up, or this one drive()
    kDone,  ///< the bucket's sums are in result(); its next step may begin
  };
  struct Awaited {
    int rank;
    uint32_t wait;  ///< tells one wait of the bucket from the next
  };

  virtual ~BucketReduction() = default;

  /// Takes this rank's values for `part` of the bucket: `part` is a range of an area, in bytes. `values` must not
  /// change until advance() has returned kDone; nullptr stands for zeros.
  virtual void put(size_t bucket, Range part, const std::byte* values, Kept kept) = 0;
  /// Announces that all of this rank's values of the bucket were put: other ranks may read them. `number` is that of
  /// the training step in which they were made. If ranks start a bucket with different numbers, advance() fails the job
  /// with kMismatch and sums nothing. 0 is not compared.
  virtual void start(size_t bucket, uint32_t number) = 0;
  /// Does what is due next in a bucket, if anything is. One thread at a time, for all buckets together.
  virtual Advanced advance(size_t bucket) = 0;
  /// The rank for which a started bucket waits, if it waits for one.
  virtual std::optional<Awaited> awaited(size_t bucket) const = 0;

  /// Moves such bytes on the calling thread, in place of the progress thread. False if another thread should do it, or
  /// none are awaited. A thread that stops calling it wakes the progress thread if moves(). Any thread.
  virtual bool drive() { return false; }
  /// Whether such bytes are awaited, of this or of anything else.
  virtual bool moves() const { return false; }

  /// The area of all sums. A bucket's sums may be read from kDone until every rank has started its next step.
  virtual const std::byte* result() const = 0;
  /// Keeps result() mapped while a copy exists.
  virtual std::shared_ptr<void> memory() const = 0;

  /// Between the two calls this thread calls advance() again and again, so no rank needs to wake this rank's progress
  /// thread.
  virtual void begin_looking() = 0;
  virtual void end_looking() = 0;
};

}  // namespace tarantella::collective
