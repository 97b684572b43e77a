#include "transport/shm/shm_link.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/fd.h"
#include "base/round.h"
#include "runtime/memory.h"
#include "runtime/rendezvous.h"

namespace tarantella::transport {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRegionAlignment = 2 * 1024 * 1024;  // a huge page, where the kernel has them for memfds

enum State : uint32_t { kAbsent = 0, kPresent = 1, kClosed = 2 };

/// One rank's entry at the start of the memory file.
struct alignas(64) Seat {
  std::atomic<uint32_t> state;
  std::atomic<int32_t> pid;
  cpu_set_t cores;
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

class ShmLink final : public Link {
 public:
  ShmLink(Fd memory, Mapping seats, int rank, int size)
      : memory_(std::make_shared<Fd>(std::move(memory))),
        seats_(std::move(seats)),
        rank_(rank),
        size_(size) {}

  ~ShmLink() override { seat(rank_).state.store(kClosed, std::memory_order_release); }

  /// A rank's record lock on its own byte of the file says that its process lives: the kernel drops it when
  /// the process ends, in whatever way, and a forked child does not inherit it.
  Status take_seat() {
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank_;
    lock.l_len = 1;
    if (::fcntl(memory_->get(), F_SETLK, &lock) != 0)
      return Status::system("lock of this rank's seat", errno);
    Seat& own = seat(rank_);
    if (::sched_getaffinity(0, sizeof(own.cores), &own.cores) != 0) {
      std::memset(&own.cores, 0xff, sizeof(own.cores));  // unknown: perhaps shared
    }
    own.pid.store(::getpid(), std::memory_order_relaxed);
    own.state.store(kPresent, std::memory_order_release);
    return {};
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  uint64_t room() const override { return runtime::available_memory(); }

  Result<Region> map(size_t bytes) override {
    const size_t offset = next_offset_;
    const size_t whole = round_up(bytes, kPage) + kPage;
    auto mapping = map_file(memory_->get(), offset, whole);
    if (!mapping.ok()) return mapping.status();
    next_offset_ = round_up(offset + whole, kRegionAlignment);
    auto region = std::make_shared<SharedRegion>(memory_, std::move(mapping).value(), offset, size_);
    return Region{{region->data(), bytes}, region};
  }

  void sleep(Word& word, uint32_t seen, Duration at_most) override {
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(at_most).count();
    const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }

  void wake(Word& word) override { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

  Presence presence(int rank) const override {
    const Seat& other = seat(rank);
    const uint32_t state = other.state.load(std::memory_order_acquire);
    if (state == kClosed) return Presence::kLeft;
    // no process holds a lock against itself: ranks that are threads of this process live as long as it does
    if (state == kAbsent || other.pid.load(std::memory_order_relaxed) == ::getpid()) return Presence::kHere;
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    if (::fcntl(memory_->get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return Presence::kHere;
    return other.state.load(std::memory_order_acquire) == kClosed ? Presence::kLeft : Presence::kGone;
  }

  bool own_cores() const override {
    for (int a = 0; a < size_; ++a) {
      for (int b = a + 1; b < size_; ++b) {
        cpu_set_t both;
        CPU_AND(&both, &seat(a).cores, &seat(b).cores);
        if (CPU_COUNT(&both) != 0) return false;
      }
    }
    return true;
  }

 private:
  Seat& seat(int rank) const { return reinterpret_cast<Seat*>(seats_.bytes().data())[rank]; }

  const std::shared_ptr<Fd> memory_;
  const Mapping seats_;
  size_t next_offset_ = kRegionAlignment;
  const int rank_;
  const int size_;
};

}  // namespace

Result<std::unique_ptr<Link>> make_shm_link(const std::string& job, int rank, int size, Deadline deadline) {
  auto memory = runtime::rendezvous(job, rank, size, deadline);
  if (!memory.ok()) return memory.status();
  const size_t seats_bytes = round_up(sizeof(Seat) * static_cast<size_t>(size), kPage);
  if (seats_bytes > kRegionAlignment)
    return Status(Code::kInvalidArgument, text(size, " ranks are too many for a node"));
  auto seats = map_file(memory.value().get(), 0, seats_bytes);
  if (!seats.ok()) return seats.status();
  auto link = std::make_unique<ShmLink>(std::move(memory).value(), std::move(seats).value(), rank, size);
  TNT_RETURN_IF_ERROR(link->take_seat());
  return Result<std::unique_ptr<Link>>(std::move(link));
}

}  // namespace tarantella::transport
