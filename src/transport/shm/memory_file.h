#pragma once
// The memory file of a job: which ranks have joined, whose process is alive, and which part of the file is free.

#include <memory>

#include "base/fd.h"
#include "base/fork_count.h"
#include "base/status.h"
#include "runtime/rank_status_file.h"
#include "transport/shm/region.h"

namespace tarantella::transport {

/// One process's view of the file. Thread-safe, except for claim_slot(). Ranks are those of the job.
class MemoryFile {
 public:
  /// Errors: kSystem; kInvalidArgument for more ranks than there is room for.
  static Result<std::shared_ptr<MemoryFile>> create(Fd memory, size_t ranks,
                                                    runtime::RankStatusFile rank_status);
  /// Gives up the slot.
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::shared_ptr<Fd>& memory() const { return memory_; }
  /// The table of the regions that all ranks of the job map.
  Table& table() const;

  /// Announces that this process is `rank`. Errors: kSystem.
  Status claim_slot(int rank);
  /// As in NodeMemory.
  bool has_ended(int rank) const;
  bool has_departed(int rank) const;
  /// Whether ranks `a` and `b` may run on one core.
  bool share_cores(int a, int b) const;
  /// See NodeMemory::cache().
  uint64_t cache(int rank) const;

  /// Reserves `bytes` of the file that were never reserved. Returns their offset in units of kRegionAlignment.
  uint64_t claim(size_t bytes) const;

 private:
  struct RankSlot;
  struct Head;

  MemoryFile(Fd memory, Mapping head, uint64_t process, runtime::RankStatusFile rank_status)
      : memory_(std::make_shared<Fd>(std::move(memory))),
        head_(std::move(head)),
        process_(process),
        rank_status_(std::move(rank_status)) {}
  Head& head() const;
  RankSlot& slot(int rank) const;

  const std::shared_ptr<Fd> memory_;
  const Mapping head_;
  const uint64_t process_;  ///< tells this process from every other
  const runtime::RankStatusFile rank_status_;
  const int fork_count_ = fork_count();
  int own_slot_ = -1;  ///< the slot of this process
};

}  // namespace tarantella::transport
