#include "transport/shm/shm_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <numeric>
#include <vector>

#include "runtime/memory.h"
#include "transport/shm/memory_file.h"

namespace tarantella::transport {
namespace {

class ShmMemory final : public NodeMemory {
 public:
  /// `members` are this memory's ranks, numbered as on the node; `node` has the numbers of all ranks of the node in
  /// the job; `table` is the members' table of regions, kept by `owner`.
  ShmMemory(std::shared_ptr<const MemoryFile> file, std::vector<int> members, int rank, NodeRanks node,
            Table& table, std::shared_ptr<void> owner)
      : file_(std::move(file)),
        members_(std::move(members)),
        rank_(rank),
        node_ranks_(std::move(node)),
        table_(table),
        table_owner_(std::move(owner)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int job_rank(int rank) const override {
    return node_ranks_.job_ranks[static_cast<size_t>(node_rank(rank))];
  }
  int job_size() const override { return node_ranks_.job_size; }
  uint64_t available_bytes() const override { return runtime::available_memory(); }

  Result<std::unique_ptr<NodeMemory>> group(const std::vector<int>& ranks) override {
    auto region = map(sizeof(Table));
    if (!region.ok()) return region.status();
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return std::unique_ptr<NodeMemory>();
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(node_rank(rank));
    auto& table = *reinterpret_cast<Table*>(region.value().bytes.data());
    return std::unique_ptr<NodeMemory>(std::make_unique<ShmMemory>(file_, std::move(members),
                                                                   static_cast<int>(found - ranks.begin()),
                                                                   node_ranks_, table, region.value().owner));
  }

  Result<Region> map(size_t bytes) override {
    const size_t offset = table_.offset(++maps_, [&] { return file_->claim(region_bytes(bytes)); });
    return map_region(file_->memory(), offset, bytes, size());
  }

  void sleep(Word& word, uint32_t seen, Duration at_most, uint32_t bits) override {
    const auto end = (Clock::now() + std::min(at_most, kForever)).time_since_epoch();
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(end).count();
    const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &limit, nullptr, bits);
  }

  void wake(Word& word, uint32_t bits) override {
    ::syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
  }

  bool has_ended(int rank) const override { return file_->has_ended(node_rank(rank)); }

  bool has_departed(int rank) const override { return file_->has_departed(node_rank(rank)); }

  bool dedicated_cores() const override {
    for (int a = 0; a < size(); ++a) {
      for (int b = a + 1; b < size(); ++b) {
        if (file_->share_cores(node_rank(a), node_rank(b))) return false;
      }
    }
    return true;
  }

  uint64_t cache() const override { return file_->cache(node_rank(rank_)); }

 private:
  /// The number of a rank on the node.
  int node_rank(int rank) const { return members_[static_cast<size_t>(rank)]; }

  const std::shared_ptr<const MemoryFile> file_;
  const std::vector<int> members_;
  const int rank_;
  const NodeRanks node_ranks_;
  Table& table_;
  const std::shared_ptr<void> table_owner_;
  uint64_t maps_ = 0;
};

}  // namespace

Result<std::unique_ptr<NodeMemory>> make_shm_memory(const std::string& job, int rank, int size,
                                                    Deadline deadline, runtime::RendezvousOptions options,
                                                    const NodeRanks* node) {
  auto memfd = runtime::rendezvous(job, rank, size, deadline, options);
  if (!memfd.ok()) return memfd.status();
  auto file =
      MemoryFile::create(std::move(memfd).value(), static_cast<size_t>(size), std::move(options.rank_status));
  if (!file.ok()) return file.status();
  TNT_RETURN_IF_ERROR(file.value()->claim_slot(rank));
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  Table& table = file.value()->table();
  return Result<std::unique_ptr<NodeMemory>>(
      std::make_unique<ShmMemory>(std::move(file).value(), members, rank,
                                  node == nullptr ? NodeRanks{members, size} : *node, table, nullptr));
}

}  // namespace tarantella::transport
