#pragma once
// The seam below the collectives: what the ranks of one node need from whatever joins them. Algorithms see
// shared bytes and words to sleep on; they never see sockets or files, and a link never sees an element type.

#include <array>
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

/// Zeroed memory that all ranks of the link see. It stays mapped while a copy of `owner` lives, and is given back
/// to the machine when no rank has one any more.
struct Region {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// A wait for another rank, as all ranks of the job see it.
struct alignas(8) Wait {
  uint16_t rank = 0;       ///< the job's number of that rank, and 1; 0: no wait
  bool gradients = false;  ///< else it waits in a blocking call
  uint8_t looks = 0;       ///< changes each time that it is found in vain
  uint32_t began = 0;      ///< tells one wait from another
};
/// Where a rank's program is, told by a thread of its own when another rank asks.
struct Place {
  Word listens;  ///< 1 where there is such a thread
  Word asked;    ///< counts questions
  Word told;     ///< counts answers, by two: odd while one is written
  std::array<std::atomic<uint64_t>, 24> text;
};
/// Those of one rank.
struct Waits {
  Place place;
  std::atomic<Wait> newest;             ///< of any thread
  std::atomic<Wait> callers_call;       ///< of the thread that makes the rank's calls: in one of them
  std::atomic<Wait> callers_gradients;  ///< and for gradients that it hands in
};
static_assert(std::atomic<Wait>::is_always_lock_free, "a Wait must work between processes");

enum class Presence {
  kHere,  ///< runs, or has not come yet
  kLeft,  ///< has closed its link: its program went on or ended without the others
  kGone,  ///< its process has died
};

/// One rank's end of a link. Thread-safe, but for map() (see there).
class Link {
 public:
  virtual ~Link() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The job's number of the link's `rank`, for messages; the two differ in a link of some ranks.
  virtual int job_rank(int rank) const = 0;

  /// Where the job's rank `job_rank` writes for whom it waits, in memory that all ranks of the job see, whatever the
  /// link.
  virtual Waits& waits(int job_rank) const = 0;

  /// A link of some ranks of this one, in the order given: the k-th call of every rank of this link, with the same
  /// `ranks` (each below size(), none twice), makes the same one. nullptr for a rank that is not among them. One
  /// thread at a time; does not wait for the other ranks. It may outlive this link. Errors: kSystem.
  virtual Result<std::unique_ptr<Link>> group(const std::vector<int>& ranks) = 0;

  /// Bytes that a region may have before the node would run out of memory.
  virtual uint64_t room() const = 0;

  /// Maps the next region: the k-th call of every rank, with the same `bytes`, gives the same memory. One thread
  /// at a time; does not wait for the other ranks. Errors: kSystem.
  virtual Result<Region> map(size_t bytes) = 0;

  /// Sleeps until `word` differs from `seen`, wake(word) is called, or `at_most` has passed; may return early.
  virtual void sleep(Word& word, uint32_t seen, Duration at_most) = 0;
  virtual void wake(Word& word) = 0;

  /// What has become of `rank`, found without its help. A rank stopped by a signal is kHere.
  virtual Presence presence(int rank) const = 0;

  /// True when no two ranks may run on the same core, so that spinning takes no time from a peer.
  /// Settled once every rank has made its link.
  virtual bool own_cores() const = 0;
};

}  // namespace tarantella::transport
