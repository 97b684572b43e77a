#include "timeline/memory.h"

#include <cerrno>

#include "base/round.h"
#include "runtime/memory.h"

namespace tarantella::timeline {
namespace {

constexpr size_t kPart = round_up(Timeline::bytes_for(kRecords), 4096);  // bytes of a rank

/// `flags`: MAP_POPULATE for a rank, which then allocates nothing while it records.
Result<Mapping> map(int file, int rank, int flags = 0) {
  const auto offset = static_cast<off_t>(static_cast<size_t>(rank) * kPart);
  flags |= file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* address = ::mmap(nullptr, kPart, PROT_READ | PROT_WRITE, flags, file, offset);
  if (address == MAP_FAILED) return Status::system("mmap", errno);
  return Mapping(address, kPart);
}

}  // namespace

Result<Memory> Memory::make(int ranks) {
  Memory memory;
  memory.file_ = runtime::make_memfd("tarantella-timeline", 0);
  if (!memory.file_.valid()) return Status::system("memfd_create", errno);
  const auto bytes = static_cast<off_t>(static_cast<size_t>(ranks) * kPart);
  if (::ftruncate(memory.fd(), bytes) != 0) return Status::system("ftruncate", errno);
  const int64_t origin = now();
  for (int rank = 0; rank < ranks; ++rank) {
    const Result<Mapping> part = memory.part(rank);
    if (!part.ok()) return part.status();
    Timeline(part.value().bytes()).mark(origin);
  }
  return memory;
}

std::optional<Mapping> Memory::inherited(int rank, int ranks) {
  const int file = inherited_file(kVariable, static_cast<size_t>(ranks) * kPart);
  if (file < 0) return std::nullopt;
  Result<Mapping> part = map(file, rank, MAP_POPULATE);
  if (!part.ok() || !Timeline(part.value().bytes()).marked()) return std::nullopt;
  return std::move(part).value();
}

Result<Mapping> Memory::own() {
  Result<Mapping> part = map(-1, 0, MAP_POPULATE);
  if (part.ok()) Timeline(part.value().bytes()).mark(now());
  return part;
}

Result<Mapping> Memory::part(int rank) const { return map(file_.get(), rank); }

}  // namespace tarantella::timeline
