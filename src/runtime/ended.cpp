#include "runtime/ended.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/memory.h"

namespace tarantella::runtime {

struct Ended::Table {
  static constexpr uint64_t kMagic = 0x6465646e65746e74;  // "tntended"

  uint64_t magic;
  uint32_t ranks;

  /// 0 while the rank runs, else its exit code and 1.
  std::atomic<uint32_t>& word(int rank) { return reinterpret_cast<std::atomic<uint32_t>*>(this + 1)[rank]; }
  static size_t bytes(int ranks) { return sizeof(Table) + static_cast<size_t>(ranks) * sizeof(uint32_t); }
};

Ended::Table* Ended::table() const { return reinterpret_cast<Table*>(mapping_.bytes().data()); }

Ended Ended::make(int ranks) {
  Ended ended;
  const size_t bytes = Table::bytes(ranks);
  Fd file = memory_file("tarantella-ended", 0);
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return ended;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return ended;
  ended.file_ = std::move(file);
  ended.mapping_ = Mapping(address, bytes);
  ended.table()->ranks = static_cast<uint32_t>(ranks);
  ended.table()->magic = Table::kMagic;
  return ended;
}

Ended Ended::inherited(int ranks) {
  Ended ended;
  const char* variable = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe)
  if (variable == nullptr) return ended;
  const std::string_view digits(variable);
  int file = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), file);
  // the parent of this rank may have closed it and opened another file
  const size_t bytes = Table::bytes(ranks);
  struct stat found{};
  if (file < 0 || ::fstat(file, &found) != 0 || found.st_size != static_cast<off_t>(bytes)) return ended;
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return ended;
  Mapping mapping(address, bytes);
  const auto* table = static_cast<const Table*>(address);
  if (table->magic == Table::kMagic && table->ranks == static_cast<uint32_t>(ranks))
    ended.mapping_ = std::move(mapping);
  return ended;
}

void Ended::tell(int rank, int code) const {
  if (mapping_.bytes().empty()) return;
  table()->word(rank).store(static_cast<uint32_t>(code) + 1, std::memory_order_release);
}

std::optional<int> Ended::exit_code(int rank) const {
  if (mapping_.bytes().empty()) return std::nullopt;
  const uint32_t word = table()->word(rank).load(std::memory_order_acquire);
  if (word == 0) return std::nullopt;
  return static_cast<int>(word - 1);
}

}  // namespace tarantella::runtime
