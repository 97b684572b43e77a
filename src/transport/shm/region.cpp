#include "transport/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/round.h"

namespace tarantella::transport {
namespace {

/// A region's mapping. Its last page counts the ranks that have released it: the last one gives the memory back.
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
    if (owner_ != ::getpid()) return;  // a forked child releases only its copy
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

}  // namespace

Result<Mapping> map_file(int fd, size_t offset, size_t bytes) {
  // fallocate grows the file and never shrinks it, so any rank may go first
  const auto last = static_cast<off_t>(offset + bytes - 1);
  while (::fallocate(fd, 0, last, 1) != 0) {
    if (errno != EINTR) return Status::system(text("fallocate of ", bytes, " bytes of shared memory"), errno);
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return Status::system(text("mmap of ", bytes, " bytes of shared memory"), errno);
  ::madvise(address, bytes, MADV_HUGEPAGE);
  return Mapping(address, bytes);
}

size_t region_bytes(size_t bytes) { return round_up(bytes, kPage) + kPage; }

Result<Region> map_region(std::shared_ptr<Fd> memory, size_t offset, size_t bytes, int ranks) {
  auto mapping = map_file(memory->get(), offset, region_bytes(bytes));
  if (!mapping.ok()) return mapping.status();
  auto region = std::make_shared<SharedRegion>(std::move(memory), std::move(mapping).value(), offset, ranks);
  return Region{{region->data(), bytes}, region};
}

}  // namespace tarantella::transport
