#pragma once
// The memory file of a job: who has a seat in it, whose process lives, and which part comes next.

#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "runtime/ended.h"
#include "transport/shm/region.h"

namespace tarantella::transport {

/// As one process sees it. Thread-safe. Ranks are the job's.
class Node {
 public:
  /// Errors: kSystem; kInvalidArgument for more ranks than there is room for.
  static Result<std::shared_ptr<const Node>> create(Fd memory, size_t ranks, runtime::Ended ended);

  const std::shared_ptr<Fd>& memory() const { return memory_; }
  /// That of the whole job.
  Table& table() const;

  /// Says that `rank` is this process. Errors: kSystem.
  Status take_seat(int rank) const;
  /// As Memory::has_ended().
  bool has_ended(int rank) const;
  /// Whether two ranks may run on one core.
  bool share_cores(int a, int b) const;

  /// A part of the file that nobody has had before, in units of kRegionAlignment.
  uint64_t claim(size_t bytes) const;

 private:
  struct Seat;
  struct Head;

  Node(Fd memory, Mapping head, uint64_t process, runtime::Ended ended)
      : memory_(std::make_shared<Fd>(std::move(memory))),
        head_(std::move(head)),
        process_(process),
        ended_(std::move(ended)) {}
  Head& head() const;
  Seat& seat(int rank) const;

  const std::shared_ptr<Fd> memory_;
  const Mapping head_;
  const uint64_t process_;  ///< tells this process from every other
  const runtime::Ended ended_;
};

}  // namespace tarantella::transport
