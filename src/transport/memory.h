#pragma once
// The memory that the ranks of one node share. Algorithms see bytes and words to sleep on; they never see sockets or
// files, and a transport knows nothing of what they do with them.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tarantella::transport {

/// A word of shared memory that ranks can sleep on.
using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4, "a Word must work between processes");

/// Zeroed memory that all ranks see. It stays mapped while a copy of `owner` lives, and is given back to the machine
/// when no rank has one any more.
struct Region {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// One rank's view of it. Thread-safe, except for map() and group().
class Memory {
 public:
  virtual ~Memory() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The job's number of `rank`, for messages; the two differ in the memory of some of the ranks.
  virtual int job_rank(int rank) const = 0;

  /// The memory of some ranks of this one, in the order given: the k-th call of every rank, with the same `ranks` (each
  /// below size(), none twice), makes the same one. nullptr for a rank that is not among them. One thread at a time;
  /// does not wait for the other ranks. It may outlive this one. Errors: kSystem.
  virtual Result<std::unique_ptr<Memory>> group(const std::vector<int>& ranks) = 0;

  /// Bytes that a region may have before the node would run out of memory.
  virtual uint64_t room() const = 0;

  /// Maps the next region: the k-th call of every rank, with the same `bytes`, gives the same memory. One thread
  /// at a time; does not wait for the other ranks. Errors: kSystem.
  virtual Result<Region> map(size_t bytes) = 0;

  /// Sleeps until `word` differs from `seen`, wake(word) is called, or `at_most` has passed; may return early.
  virtual void sleep(Word& word, uint32_t seen, Duration at_most) = 0;
  virtual void wake(Word& word) = 0;

  /// Whether the process of `rank` has ended, in whatever way, found without its help. False for one that is stopped by
  /// a signal, and for one that has not come yet.
  virtual bool has_ended(int rank) const = 0;

  /// True when no two ranks may run on the same core, so that spinning takes no time from a peer. Settled once every
  /// rank has its memory.
  virtual bool own_cores() const = 0;
};

}  // namespace tarantella::transport
