#include "transport/shm/shm_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <numeric>
#include <vector>

#include "runtime/memory.h"
#include "transport/shm/node.h"

namespace tarantella::transport {
namespace {

class ShmMemory final : public Memory {
 public:
  /// `members` are this memory's ranks, numbered as on the node; `job` has the numbers of all ranks of the node in the
  /// job; `table` is the members' table of regions, kept by `owner`.
  ShmMemory(std::shared_ptr<const Node> node, std::vector<int> members, int rank, PartOfJob job, Table& table,
            std::shared_ptr<void> owner)
      : node_(std::move(node)),
        members_(std::move(members)),
        rank_(rank),
        job_(std::move(job)),
        table_(table),
        table_owner_(std::move(owner)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int job_rank(int rank) const override { return job_.ranks[static_cast<size_t>(place(rank))]; }
  int job_size() const override { return job_.size; }
  uint64_t room() const override { return runtime::available_memory(); }

  Result<std::unique_ptr<Memory>> group(const std::vector<int>& ranks) override {
    auto region = map(sizeof(Table));
    if (!region.ok()) return region.status();
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return std::unique_ptr<Memory>();
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(place(rank));
    auto& table = *reinterpret_cast<Table*>(region.value().bytes.data());
    return std::unique_ptr<Memory>(std::make_unique<ShmMemory>(node_, std::move(members),
                                                               static_cast<int>(found - ranks.begin()), job_,
                                                               table, region.value().owner));
  }

  Result<Region> map(size_t bytes) override {
    const size_t offset = table_.offset(++maps_, [&] { return node_->claim(region_bytes(bytes)); });
    return map_region(node_->memory(), offset, bytes, size());
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

  bool has_ended(int rank) const override { return node_->has_ended(place(rank)); }

  bool has_left(int rank) const override { return node_->has_left(place(rank)); }

  bool own_cores() const override {
    for (int a = 0; a < size(); ++a) {
      for (int b = a + 1; b < size(); ++b) {
        if (node_->share_cores(place(a), place(b))) return false;
      }
    }
    return true;
  }

  uint64_t cache() const override { return node_->cache(place(rank_)); }

 private:
  /// The number of a rank on the node.
  int place(int rank) const { return members_[static_cast<size_t>(rank)]; }

  const std::shared_ptr<const Node> node_;
  const std::vector<int> members_;
  const int rank_;
  const PartOfJob job_;
  Table& table_;
  const std::shared_ptr<void> table_owner_;
  uint64_t maps_ = 0;
};

}  // namespace

Result<std::unique_ptr<Memory>> make_shm_memory(const std::string& job, int rank, int size, Deadline deadline,
                                                runtime::MeetingOptions options, const PartOfJob* part) {
  auto file = runtime::rendezvous(job, rank, size, deadline, options);
  if (!file.ok()) return file.status();
  auto node = Node::create(std::move(file).value(), static_cast<size_t>(size), std::move(options.attendance));
  if (!node.ok()) return node.status();
  TNT_RETURN_IF_ERROR(node.value()->take_seat(rank));
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  Table& table = node.value()->table();
  return Result<std::unique_ptr<Memory>>(
      std::make_unique<ShmMemory>(std::move(node).value(), members, rank,
                                  part == nullptr ? PartOfJob{members, size} : *part, table, nullptr));
}

}  // namespace tarantella::transport
