#pragma once
// What each rank of a job says about itself, in one table that all ranks see, whatever groups they form.

#include <memory>

#include "base/status.h"
#include "collective/source_location.h"
#include "collective/wait_graph.h"
#include "transport/node_memory.h"

namespace tarantella::collective {

enum class RankState {
  kAlive,     ///< runs, or has not joined yet
  kDeparted,  ///< has left the group; its program may go on
  kDead,      ///< its process has ended without leaving the group
};

/// One rank's view of the table. Thread-safe. Ranks are those of the job.
class RankTable {
 public:
  /// Collective over the ranks of the node: their first use of `memory`. Does not wait for other ranks. Errors:
  /// kSystem.
  static Result<std::shared_ptr<RankTable>> create(std::shared_ptr<transport::NodeMemory> memory);

  int rank() const { return rank_; }

  WaitEdges& waits(int rank) const { return row(rank).waits; }
  SourceLocation& location(int rank) const { return row(rank).location; }

  /// Shows that this rank runs. Its progress thread calls it at least once a second.
  void beat() { row(rank()).heartbeat.fetch_add(1, std::memory_order_relaxed); }
  /// A number that changes as long as `rank` runs.
  uint32_t heartbeat(int rank) const { return row(rank).heartbeat.load(std::memory_order_relaxed); }

  /// Wakes the progress thread of `rank`, which checks what has changed. Does not block.
  void wake_progress_thread(int rank) { wake_sleepers(increment_wake_count(rank)); }
  /// wake_progress_thread() in two parts, so that several ranks need one wake-up: increment_wake_count() for each,
  /// which returns the bit of a thread that sleeps, then wake_sleepers() with the bits of all.
  uint32_t increment_wake_count(int rank);
  void wake_sleepers(uint32_t asleep);
  /// How often this rank's progress thread was woken, asleep or not.
  uint32_t wake_count() const { return row(rank()).wake_count.load(std::memory_order_seq_cst); }
  /// Sleeps until wake_count() differs from `seen` or `at_most` has passed; may return early.
  void sleep_until_woken(uint32_t seen, Duration at_most);

  /// Asks all ranks of the node to print their Python stacks; this is never withdrawn. Does not block.
  void want_stacks();
  bool wants_stacks() const { return head().wants_stacks.load(std::memory_order_acquire) != 0; }

  /// As in transport::NodeMemory, for words of the table.
  void sleep(transport::Word& word, uint32_t seen, Duration at_most) { memory_->sleep(word, seen, at_most); }
  void wake(transport::Word& word) { memory_->wake(word); }

 private:
  struct alignas(64) Row {
    SourceLocation location;
    WaitEdges waits;
    alignas(64) transport::Word wake_count;
    transport::Word sleepers;
    alignas(64) transport::Word heartbeat;
  };
  struct alignas(64) Head {
    transport::Word
        wakes;  ///< all progress threads sleep on it, each with the bit of its rank; changes before a wake
    transport::Word wants_stacks;
  };

  RankTable(std::shared_ptr<transport::NodeMemory> memory, transport::Region table)
      : memory_(std::move(memory)), rank_(memory_->job_rank(memory_->rank())), table_(std::move(table)) {}
  static uint32_t bit_of(int rank) { return uint32_t{1} << (rank % 32); }
  Head& head() const { return *reinterpret_cast<Head*>(table_.bytes.data()); }
  Row& row(int rank) const { return reinterpret_cast<Row*>(table_.bytes.data() + sizeof(Head))[rank]; }

  const std::shared_ptr<transport::NodeMemory> memory_;
  const int rank_;
  const transport::Region table_;
};

}  // namespace tarantella::collective
