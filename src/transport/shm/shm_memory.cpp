#include "transport/shm/shm_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/fd.h"
#include "base/forks.h"
#include "base/round.h"
#include "runtime/cpu_mask.h"
#include "runtime/memory.h"
#include "runtime/rendezvous.h"

namespace tarantella::transport {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRegionAlignment = 2 * 1024 * 1024;  // a huge page, where the kernel has them for memfds

constexpr uint64_t kOffsetBits = 40;

/// One rank's entry at the start of the memory file.
struct alignas(64) Seat {
  std::atomic<uint32_t> present;
  std::atomic<uint64_t> process;  ///< process_number()
  runtime::CpuMask cores;
};

/// Tells this process from every other: process ids are alike in different PID namespaces.
Result<uint64_t> process_number() {
  static std::mutex drawing;
  const std::lock_guard lock(drawing);
  static uint64_t number = 0;
  static int drawn_at = -1;  // a forked child is another process
  if (drawn_at != forks()) {
    if (::getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number)))
      return Status::system("getrandom", errno);
    drawn_at = forks();
  }
  return number;
}

/// What the ranks of one ShmMemory share to map the same regions.
struct alignas(64) Table {
  static constexpr size_t kEntries = 64;  // ranks are at most one map() apart

  /// Of the k-th map(), at k % kEntries: k above kOffsetBits bits of its offset in units of kRegionAlignment.
  std::array<std::atomic<uint64_t>, kEntries> regions;
};

/// The start of the memory file: this, the job's Table, its seats.
struct alignas(64) Head {
  std::atomic<uint64_t>
      next_region;  ///< in units of kRegionAlignment, after the first one, which holds all this
};

Result<Mapping> map_file(int fd, size_t offset, size_t bytes) {
  // fallocate grows the file and never shrinks it, so ranks need not agree on who goes first
  const auto last = static_cast<off_t>(offset + bytes - 1);
  while (::fallocate(fd, 0, last, 1) != 0) {
    if (errno != EINTR) return Status::system(text("fallocate of ", bytes, " bytes of shared memory"), errno);
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return Status::system(text("mmap of ", bytes, " bytes of shared memory"), errno);
  ::madvise(address, bytes, MADV_HUGEPAGE);
  return Mapping(address, bytes);
}

/// A region's mapping. Its last page counts the ranks that have let go of it: the last one gives the memory back.
class SharedRegion {
 public:
  SharedRegion(std::shared_ptr<Fd> memory, Mapping mapping, size_t offset, int size)
      : memory_(std::move(memory)),
        mapping_(std::move(mapping)),
        offset_(offset),
        size_(static_cast<uint32_t>(size)) {}
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion() {
    if (owner_ != ::getpid()) return;  // a forked child lets go of its copy only
    auto* released = reinterpret_cast<Word*>(mapping_.bytes().data() + mapping_.bytes().size() - kPage);
    if (released->fetch_add(1, std::memory_order_acq_rel) + 1 != size_) return;
    ::fallocate(memory_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
                static_cast<off_t>(mapping_.bytes().size()));
  }

  std::byte* data() const { return mapping_.bytes().data(); }

 private:
  const std::shared_ptr<Fd> memory_;
  const Mapping mapping_;
  const size_t offset_;
  const uint32_t size_;
  const pid_t owner_ = ::getpid();
};

/// The memory file of a job, as a process sees it.
class Node {
 public:
  Node(Fd memory, Mapping head, runtime::Ended ended)
      : memory_(std::make_shared<Fd>(std::move(memory))), head_(std::move(head)), ended_(std::move(ended)) {}

  static size_t head_bytes(size_t size) { return seats_offset() + sizeof(Seat) * size; }

  const std::shared_ptr<Fd>& memory() const { return memory_; }
  Table& table() const { return *reinterpret_cast<Table*>(bytes() + sizeof(Head)); }
  Seat& seat(int rank) const { return reinterpret_cast<Seat*>(bytes() + seats_offset())[rank]; }

  bool has_ended(int rank) const { return ended_.exit_code(rank).has_value(); }

  /// A part of the file that nobody has had before, in units of kRegionAlignment.
  uint64_t claim(size_t bytes) const {
    const uint64_t units = round_up(bytes, kRegionAlignment) / kRegionAlignment;
    return 1 +
           reinterpret_cast<Head*>(this->bytes())->next_region.fetch_add(units, std::memory_order_relaxed);
  }

 private:
  static size_t seats_offset() { return round_up(sizeof(Head) + sizeof(Table), alignof(Seat)); }
  std::byte* bytes() const { return head_.bytes().data(); }

  const std::shared_ptr<Fd> memory_;
  const Mapping head_;
  const runtime::Ended ended_;
};

class ShmMemory final : public Memory {
 public:
  /// `members` are the job's ranks of this memory; `table` is theirs, kept by `owner`; `process` is process_number().
  ShmMemory(std::shared_ptr<const Node> node, std::vector<int> members, int rank, uint64_t process,
            Table& table, std::shared_ptr<void> owner)
      : node_(std::move(node)),
        members_(std::move(members)),
        rank_(rank),
        process_(process),
        table_(table),
        table_owner_(std::move(owner)) {}

  /// A rank's record lock on its own byte of the file says that its process lives: the kernel drops it when
  /// the process ends, in whatever way, and a forked child does not inherit it.
  Status take_seat() {
    struct flock lock = lock_of(rank_);
    if (::fcntl(node_->memory()->get(), F_SETLK, &lock) != 0)
      return Status::system("lock of this rank's seat", errno);
    Seat& own = node_->seat(rank_);
    if (!own.cores.read()) own.cores.words.fill(UINT64_MAX);  // unknown: perhaps shared
    own.process.store(process_, std::memory_order_relaxed);
    own.present.store(1, std::memory_order_release);
    return {};
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int job_rank(int rank) const override { return members_[static_cast<size_t>(rank)]; }
  uint64_t room() const override { return runtime::available_memory(); }

  Result<std::unique_ptr<Memory>> group(const std::vector<int>& ranks) override {
    auto region = map(sizeof(Table));
    if (!region.ok()) return region.status();
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return std::unique_ptr<Memory>();
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(job_rank(rank));
    auto& table = *reinterpret_cast<Table*>(region.value().bytes.data());
    return std::unique_ptr<Memory>(std::make_unique<ShmMemory>(node_, std::move(members),
                                                               static_cast<int>(found - ranks.begin()),
                                                               process_, table, region.value().owner));
  }

  Result<Region> map(size_t bytes) override {
    const size_t whole = round_up(bytes, kPage) + kPage;
    const size_t offset = next_offset(whole);
    auto mapping = map_file(node_->memory()->get(), offset, whole);
    if (!mapping.ok()) return mapping.status();
    auto region = std::make_shared<SharedRegion>(node_->memory(), std::move(mapping).value(), offset, size());
    return Region{{region->data(), bytes}, region};
  }

  void sleep(Word& word, uint32_t seen, Duration at_most) override {
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(at_most).count();
    const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }

  void wake(Word& word) override { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

  bool has_ended(int rank) const override {
    const Seat& other = node_->seat(job_rank(rank));
    const bool ended = node_->has_ended(job_rank(rank));  // before its seat is looked at
    if (other.present.load(std::memory_order_acquire) == 0) return ended;
    // no process holds a lock against itself: ranks that are threads of this process live as long as it does
    if (other.process.load(std::memory_order_relaxed) == process_) return false;
    struct flock lock = lock_of(job_rank(rank));
    return ::fcntl(node_->memory()->get(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }

  bool own_cores() const override {
    for (int a = 0; a < size(); ++a) {
      for (int b = a + 1; b < size(); ++b) {
        if (node_->seat(job_rank(a)).cores.meets(node_->seat(job_rank(b)).cores)) return false;
      }
    }
    return true;
  }

 private:
  static struct flock lock_of(int rank) {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  /// Where the coming region lies in the file: the first rank to ask decides.
  size_t next_offset(size_t bytes) {
    constexpr uint64_t kMask = (uint64_t{1} << kOffsetBits) - 1;
    const uint64_t number = ++maps_ << kOffsetBits;
    std::atomic<uint64_t>& entry = table_.regions[maps_ % Table::kEntries];
    uint64_t seen = entry.load(std::memory_order_acquire);
    if ((seen & ~kMask) != number) {
      const uint64_t mine = number | node_->claim(bytes);
      if (entry.compare_exchange_strong(seen, mine, std::memory_order_acq_rel)) seen = mine;
    }
    return (seen & kMask) * kRegionAlignment;
  }

  const std::shared_ptr<const Node> node_;
  const std::vector<int> members_;
  const int rank_;
  const uint64_t process_;
  Table& table_;
  const std::shared_ptr<void> table_owner_;
  uint64_t maps_ = 0;
};

}  // namespace

Result<std::unique_ptr<Memory>> make_shm_memory(const std::string& job, int rank, int size, Deadline deadline,
                                                runtime::MeetingOptions options) {
  auto memory = runtime::rendezvous(job, rank, size, deadline, options);
  if (!memory.ok()) return memory.status();
  const auto ranks = static_cast<size_t>(size);
  const size_t bytes = round_up(Node::head_bytes(ranks), kPage);
  if (bytes > kRegionAlignment)
    return Status(Code::kInvalidArgument, text(size, " ranks are too many for a node"));
  auto head = map_file(memory.value().get(), 0, bytes);
  if (!head.ok()) return head.status();
  auto node = std::make_shared<const Node>(std::move(memory).value(), std::move(head).value(),
                                           std::move(options.ended));
  const auto process = process_number();
  if (!process.ok()) return process.status();
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  auto shared =
      std::make_unique<ShmMemory>(node, std::move(members), rank, process.value(), node->table(), nullptr);
  TNT_RETURN_IF_ERROR(shared->take_seat());
  return Result<std::unique_ptr<Memory>>(std::move(shared));
}

}  // namespace tarantella::transport
