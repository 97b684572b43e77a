#pragma once
// Sums the same buckets of values over the ranks in every step. The interface of every way to reduce gradients: in a
// node's memory (shared_memory_reduction.h), and between nodes (internode/internode_reduction.h); later on devices.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "collective/chunking.h"

namespace tarantella::collective {

/// A range of an area that is summed as a unit. An area holds all values of one rank, or all sums.
struct Bucket {
  static constexpr size_t kAlignment = 64;

  DType dtype;
  size_t offset;  ///< bytes from the start of an area, a multiple of kAlignment
  size_t bytes;   ///< a multiple of kAlignment, with the padding at its end, which is summed too

  Range range() const { return {offset, offset + bytes}; }
};

/// Where the training steps of start() are compared, and whether waits for the buckets are exclusive. The values are
/// those of tnt_step_check.
enum class StepCheck {
  kOnNode,    ///< between the ranks of a node only
  kAllNodes,  ///< between nodes, too
  /// As kAllNodes. A rank that has started the buckets starts no others before these are summed, so its wait for them
  /// is exclusive: deadlocks with it are detected (see WaitKind), also between nodes.
  kAllNodesExclusive,
};

/// A rank of the job, and the training step in which it has started a bucket.
struct Started {
  int rank;
  uint32_t training_step;
};

/// kMismatch: the two have started a bucket of `name` in different training steps.
Status different_steps(const std::string& name, Started one, Started other);

/// A bucket is used again and again. A generation, one use of it, is: put() of all its values, start(), then advance()
/// until it returns kDone. Buckets do not wait for one another; all ranks take part in the same generations of each.
/// Thread-safe, except for advance(); never blocks.
class BucketReduction {
 public:
  enum class Advanced {
    kNothing,
    kCallAgain,  ///< this rank has summed its slice, if it had to; call advance() again at once
    kExchangeBegun,  ///< bytes of other nodes are awaited from now on: wake up the progress thread, or call progress()
    kDone,           ///< the bucket's sums are in result(); its next generation may begin
  };
  struct Awaited {
    int rank;
    uint32_t wait_id;  ///< tells one wait of the bucket from the next
  };

  virtual ~BucketReduction() = default;

  /// Takes this rank's values for a part of the bucket: `range` is a range of an area, in bytes. `values` must not
  /// change until advance() has returned kDone; nullptr stands for zeros. `owner` keeps them where another node may
  /// read them for longer, after a failure; nullptr: no other node reads them where they are.
  virtual void put(size_t bucket, Range range, const std::byte* values,
                   const std::shared_ptr<const void>& owner) = 0;
  /// Announces that all of this rank's values of the bucket were put: other ranks may read them. `training_step` is
  /// that in which they were made. If ranks start a bucket in different training steps, advance() fails the job with
  /// kMismatch and sums nothing. 0 is not compared.
  virtual void start(size_t bucket, uint32_t training_step) = 0;
  /// Does what is due next in a bucket, if anything is. One thread at a time, for all buckets together.
  virtual Advanced advance(size_t bucket) = 0;
  /// Ends a bucket whose values are not summed any more: lets go of its owner as soon as no other node reads what it
  /// keeps. The thread that calls advance(), or, before start(), the one that calls put(). advance() must not follow.
  virtual void abort(size_t) {}
  /// The rank for which a started bucket waits, if it waits for one.
  virtual std::optional<Awaited> awaited(size_t bucket) const = 0;

  /// Polls the network on the calling thread, in place of the progress thread. False if no bytes of other nodes are
  /// awaited, or if another thread should poll. A thread that stops calling it wakes the progress thread if
  /// has_in_flight(). Any thread.
  virtual bool progress() { return false; }
  /// Whether bytes of other nodes are awaited, by this or by anything else.
  virtual bool has_in_flight() const { return false; }

  /// The area of all sums. A bucket's sums may be read from kDone until every rank has started its next generation.
  virtual const std::byte* result() const = 0;
  /// Keeps result() mapped while a copy exists.
  virtual std::shared_ptr<void> memory() const = 0;

  /// Between the two calls this thread calls advance() again and again, so no rank needs to wake this rank's progress
  /// thread.
  virtual void begin_polling() = 0;
  virtual void end_polling() = 0;
};

}  // namespace tarantella::collective
