#pragma once
// The memory that the ranks of one node share. Algorithms see bytes, and words on which they can sleep; they never see
// sockets or files. A transport does not know what they do with the bytes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tarantella::transport {

/// A word of shared memory on which ranks can sleep.
using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4, "a Word must work between processes");

/// Memory that all ranks see, zeroed at first. It stays mapped while a copy of `owner` exists, and is given back to
/// the machine when no rank has a copy.
struct Region {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// One rank's view of the shared memory. Thread-safe, except for map() and group().
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The number of `rank` in the whole job, for messages. It differs from `rank` in a memory made by group(), and
  /// in a job of several nodes.
  virtual int job_rank(int rank) const = 0;
  /// The number of ranks in the whole job, those of other nodes included.
  virtual int job_size() const = 0;

  /// A memory of some ranks of this one, numbered in the order of `ranks` (each below size(), none twice). Every rank
  /// calls it with the same `ranks`: the k-th call of each makes the same memory. Returns nullptr on a rank that is not
  /// in `ranks`. The result may outlive this object. One thread at a time; does not wait for other ranks.
  /// Errors: kSystem.
  virtual Result<std::unique_ptr<NodeMemory>> group(const std::vector<int>& ranks) = 0;

  /// The largest region, in bytes, for which the node has memory now.
  virtual uint64_t available_bytes() const = 0;

  /// Maps the next region. Every rank calls it with the same `bytes`: the k-th call of each maps the same memory. One
  /// thread at a time; does not wait for other ranks. Errors: kSystem.
  virtual Result<Region> map(size_t bytes) = 0;

  /// Sleeps until `word` differs from `seen`, wake() is called for it with one of the `bits` (not 0), or `at_most` has
  /// passed; may return early.
  virtual void sleep(Word& word, uint32_t seen, Duration at_most, uint32_t bits) = 0;
  void sleep(Word& word, uint32_t seen, Duration at_most) { sleep(word, seen, at_most, UINT32_MAX); }
  /// Wakes all ranks that sleep on `word` with one of the `bits` (not 0). Does not block.
  virtual void wake(Word& word, uint32_t bits) = 0;
  void wake(Word& word) { wake(word, UINT32_MAX); }

  /// Whether the process of `rank` has ended, however it ended; needs no help of that process. False for a process that
  /// a signal has stopped, and for one that has not joined yet.
  virtual bool has_ended(int rank) const = 0;

  /// Whether `rank` has given up its memory of the whole job and of every group, while its process may live on.
  virtual bool has_departed(int rank) const = 0;

  /// True if no two ranks may run on the same core, so that spinning takes no time from another rank. Does not change
  /// once every rank has its memory.
  virtual bool dedicated_cores() const = 0;

  /// A number that this rank has in common with the ranks whose cores share its last-level cache; 0 if that is unknown.
  /// A hint.
  virtual uint64_t cache() const = 0;
};

}  // namespace tarantella::transport
