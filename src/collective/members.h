#pragma once
// The ranks of a job: what each says about itself, in one table that all ranks see, whatever groups they form.

#include <memory>

#include "base/status.h"
#include "collective/place.h"
#include "collective/waits.h"
#include "transport/memory.h"

namespace tarantella::collective {

enum class Presence {
  kHere,  ///< runs, or has not joined yet
  kLeft,  ///< has left the group; its program may go on
  kGone,  ///< its process has ended without leaving the group
};

/// One rank's view of the table. Thread-safe. Ranks are those of the job.
class Members {
 public:
  /// Collective over the ranks of the node: their first use of `memory`. Does not wait for other ranks. Errors:
  /// kSystem.
  static Result<std::shared_ptr<Members>> create(std::shared_ptr<transport::Memory> memory);

  int rank() const { return rank_; }

  Waits& waits(int rank) const { return row(rank).waits; }
  Place& place(int rank) const { return row(rank).place; }

  /// Shows that this rank runs. Its progress thread calls it at least once a second.
  void beat() { row(rank()).heartbeat.fetch_add(1, std::memory_order_relaxed); }
  /// A number that changes as long as `rank` runs.
  uint32_t heartbeat(int rank) const { return row(rank).heartbeat.load(std::memory_order_relaxed); }

  /// Rings the bell of `rank`: wakes its progress thread, which looks for what has changed. Does not block.
  void ring(int rank) { wake_rung(change_bell(rank)); }
  /// ring() in two parts, so that several ranks need one wake-up: change_bell() for each, then wake_rung() with the
  /// bits of all.
  uint32_t change_bell(int rank);
  void wake_rung(uint32_t asleep);
  /// How often this rank's bell was rung.
  uint32_t bell() const { return row(rank()).bell.load(std::memory_order_seq_cst); }
  /// Sleeps until the bell differs from `seen` or `at_most` has passed; may return early.
  void sleep_until_rung(uint32_t seen, Duration at_most);

  /// Asks all ranks of the node to show where their programs are, for good. Does not block.
  void want_stacks();
  bool wants_stacks() const { return head().wants_stacks.load(std::memory_order_acquire) != 0; }

  /// As in transport::Memory, for words of the table.
  void sleep(transport::Word& word, uint32_t seen, Duration at_most) { memory_->sleep(word, seen, at_most); }
  void wake(transport::Word& word) { memory_->wake(word); }

 private:
  struct alignas(64) Row {
    Place place;
    Waits waits;
    alignas(64) transport::Word bell;
    transport::Word bell_sleepers;
    alignas(64) transport::Word heartbeat;
  };
  struct alignas(64) Head {
    transport::Word
        wakes;  ///< all progress threads sleep on it, each with the bit of its rank; changes before a wake
    transport::Word wants_stacks;
  };

  Members(std::shared_ptr<transport::Memory> memory, transport::Region table)
      : memory_(std::move(memory)), rank_(memory_->job_rank(memory_->rank())), table_(std::move(table)) {}
  static uint32_t bit_of(int rank) { return uint32_t{1} << (rank % 32); }
  Head& head() const { return *reinterpret_cast<Head*>(table_.bytes.data()); }
  Row& row(int rank) const { return reinterpret_cast<Row*>(table_.bytes.data() + sizeof(Head))[rank]; }

  const std::shared_ptr<transport::Memory> memory_;
  const int rank_;
  const transport::Region table_;
};

}  // namespace tarantella::collective
