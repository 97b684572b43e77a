#pragma once
// The memory file of a job: which ranks have joined, whose process is alive, and which part of the file is free.

#include <memory>

#include "base/fd.h"
#include "base/forks.h"
#include "base/status.h"
#include "runtime/attendance.h"
#include "transport/shm/region.h"

namespace tarantella::transport {

/// One process's view of the file. Thread-safe, except for take_seat(). Ranks are those of the job.
class Node {
 public:
  /// Errors: kSystem; kInvalidArgument for more ranks than there is room for.
  static Result<std::shared_ptr<Node>> create(Fd memory, size_t ranks, runtime::Attendance attendance);
  /// Gives up the seat.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const std::shared_ptr<Fd>& memory() const { return memory_; }
  /// The table of the regions that all ranks of the job map.
  Table& table() const;

  /// Announces that this process is `rank`. Errors: kSystem.
  Status take_seat(int rank);
  /// As in Memory.
  bool has_ended(int rank) const;
  bool has_left(int rank) const;
  /// Whether ranks `a` and `b` may run on one core.
  bool share_cores(int a, int b) const;
  /// See Memory::cache().
  uint64_t cache(int rank) const;

  /// Reserves `bytes` of the file that were never reserved. Returns their offset in units of kRegionAlignment.
  uint64_t claim(size_t bytes) const;

 private:
  struct Seat;
  struct Head;

  Node(Fd memory, Mapping head, uint64_t process, runtime::Attendance attendance)
      : memory_(std::make_shared<Fd>(std::move(memory))),
        head_(std::move(head)),
        process_(process),
        attendance_(std::move(attendance)) {}
  Head& head() const;
  Seat& seat(int rank) const;

  const std::shared_ptr<Fd> memory_;
  const Mapping head_;
  const uint64_t process_;  ///< tells this process from every other
  const runtime::Attendance attendance_;
  const int forks_ = forks();
  int own_ = -1;  ///< the seat of this process
};

}  // namespace tarantella::transport
