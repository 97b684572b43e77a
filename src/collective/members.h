#pragma once
// The ranks of a job: what each of them says about itself, in one table that all see, whatever groups they form.

#include <memory>

#include "base/status.h"
#include "collective/place.h"
#include "collective/waits.h"
#include "transport/memory.h"

namespace tarantella::collective {

enum class Presence {
  kHere,  ///< runs, or has not come yet
  kLeft,  ///< has left: its program went on or ended without the others
  kGone,  ///< its process has ended without a word
};

/// One rank's view of the table. Thread-safe. Ranks are the job's.
class Members {
 public:
  /// Collective over the job, as its first use of `memory`; waits for nobody. Errors: kSystem.
  static Result<std::shared_ptr<Members>> create(std::shared_ptr<transport::Memory> memory);

  int rank() const { return memory_->rank(); }
  int size() const { return memory_->size(); }

  Waits& waits(int rank) const { return row(rank).waits; }
  Place& place(int rank) const { return row(rank).place; }

  /// Says that this rank runs; called now and then by its progress thread.
  void beat() { row(rank()).heartbeat.fetch_add(1, std::memory_order_relaxed); }
  /// Changes while `rank` runs.
  uint32_t heartbeat(int rank) const { return row(rank).heartbeat.load(std::memory_order_relaxed); }

  /// Rings the bell of a rank: something changed that its progress thread should see.
  void ring(int rank);
  /// How often this rank's own was rung.
  uint32_t bell() const { return row(rank()).bell.load(std::memory_order_seq_cst); }
  /// Sleeps until the bell differs from `seen` or `at_most` has passed.
  void sleep_until_rung(uint32_t seen, Duration at_most);

  /// For words of the table.
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

  Members(std::shared_ptr<transport::Memory> memory, transport::Region table)
      : memory_(std::move(memory)), table_(std::move(table)) {}
  Row& row(int rank) const { return reinterpret_cast<Row*>(table_.bytes.data())[rank]; }

  const std::shared_ptr<transport::Memory> memory_;
  const transport::Region table_;
};

}  // namespace tarantella::collective
