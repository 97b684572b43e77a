#include "transport/shm/memory_file.h"

#include <fcntl.h>
#include <sys/random.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/fork_count.h"
#include "base/round.h"
#include "runtime/cache.h"
#include "runtime/cpu_mask.h"

namespace tarantella::transport {

/// One rank's entry, after the Head.
struct alignas(64) MemoryFile::RankSlot {
  std::atomic<uint32_t> present;
  std::atomic<uint32_t> departed;  ///< 1: given up
  std::atomic<uint64_t> process;   ///< process_number() of the rank
  runtime::CpuMask cores;
};

/// The start of the memory file.
struct alignas(64) MemoryFile::Head {
  std::atomic<uint64_t>
      next_region;  ///< in units of kRegionAlignment, after the first one, which holds all this
  Table table;
};

namespace {

/// A number that no other process has. Process ids do not do: they are equal in different PID namespaces.
Result<uint64_t> process_number() {
  static std::mutex drawing;
  const std::lock_guard lock(drawing);
  static uint64_t number = 0;
  static int drawn_at = -1;  // a forked child is another process
  if (drawn_at != fork_count()) {
    if (::getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number)))
      return Status::system("getrandom", errno);
    drawn_at = fork_count();
  }
  return number;
}

/// A rank's record lock on its own byte of the file shows that its process is alive: the kernel drops the lock when the
/// process ends, however it ends, and a forked child does not inherit it. The kernel also drops it when the process
/// closes any descriptor of the file.
struct flock lock_of(int rank) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<std::shared_ptr<MemoryFile>> MemoryFile::create(Fd memory, size_t ranks,
                                                       runtime::RankStatusFile rank_status) {
  const size_t bytes = round_up(sizeof(Head) + sizeof(RankSlot) * ranks, kPage);
  if (bytes > kRegionAlignment)
    return Status(Code::kInvalidArgument, text(ranks, " ranks are too many for a node"));
  auto head = map_file(memory.get(), 0, bytes);
  if (!head.ok()) return head.status();
  const auto process = process_number();
  if (!process.ok()) return process.status();
  return std::shared_ptr<MemoryFile>(
      new MemoryFile(std::move(memory), std::move(head).value(), process.value(), std::move(rank_status)));
}

MemoryFile::~MemoryFile() {
  // a forked child lets go of its copy only
  if (own_slot_ >= 0 && fork_count_ == fork_count())
    slot(own_slot_).departed.store(1, std::memory_order_release);
}

MemoryFile::Head& MemoryFile::head() const { return *reinterpret_cast<Head*>(head_.bytes().data()); }

MemoryFile::RankSlot& MemoryFile::slot(int rank) const {
  return reinterpret_cast<RankSlot*>(head_.bytes().data() + sizeof(Head))[rank];
}

Table& MemoryFile::table() const { return head().table; }

Status MemoryFile::claim_slot(int rank) {
  struct flock lock = lock_of(rank);
  if (::fcntl(memory_->get(), F_SETLK, &lock) != 0) return Status::system("lock of this rank's slot", errno);
  RankSlot& own = slot(rank);
  if (!own.cores.read()) own.cores.words.fill(UINT64_MAX);  // unknown: perhaps shared
  own.process.store(process_, std::memory_order_relaxed);
  own.present.store(1, std::memory_order_release);
  own_slot_ = rank;
  return {};
}

bool MemoryFile::has_ended(int rank) const {
  const RankSlot& other = slot(rank);
  const bool ended = rank_status_.exit_code(rank).has_value();  // read before the slot
  if (other.present.load(std::memory_order_acquire) == 0) return ended;
  // no process holds a lock against itself: ranks that are threads of this process live as long as it does
  if (other.process.load(std::memory_order_relaxed) == process_) return false;
  struct flock lock = lock_of(rank);
  return ::fcntl(memory_->get(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool MemoryFile::has_departed(int rank) const {
  return slot(rank).departed.load(std::memory_order_acquire) != 0;
}

bool MemoryFile::share_cores(int a, int b) const { return slot(a).cores.intersects(slot(b).cores); }

uint64_t MemoryFile::cache(int rank) const { return runtime::last_level_cache(slot(rank).cores); }

uint64_t MemoryFile::claim(size_t bytes) const {
  const uint64_t units = round_up(bytes, kRegionAlignment) / kRegionAlignment;
  return 1 + head().next_region.fetch_add(units, std::memory_order_relaxed);
}

}  // namespace tarantella::transport
