#include "support/fake_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tarantella::transport {
namespace {

constexpr size_t kAlignment = 4096;

std::shared_ptr<std::byte> zeroed(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  std::memset(memory, 0, rounded);
  return {memory, std::free};
}

}  // namespace

class FakeMemory final : public NodeMemory {
 public:
  FakeMemory(FakeNode& node, int rank) : node_(node), rank_(rank) {}
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;
  ~FakeMemory() override { node_.leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(node_.members_.size()); }
  int job_rank(int rank) const override { return node_.job_rank(rank); }
  int job_size() const override { return node_.job_size_; }

  Result<std::unique_ptr<NodeMemory>> group(const std::vector<int>& ranks) override {
    FakeNode& node = node_.group(groups_++, ranks);
    const auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return std::unique_ptr<NodeMemory>();
    return node.memory(static_cast<int>(found - ranks.begin()));
  }

  uint64_t available_bytes() const override {
    const std::lock_guard lock(node_.mutex_);
    return node_.available_bytes_;
  }

  Result<Region> map(size_t bytes) override {
    const std::lock_guard lock(node_.mutex_);
    if (node_.refused_[static_cast<size_t>(rank_)]) return Status(Code::kSystem, "map: refused");
    if (mapped_ == node_.regions_.size()) {
      node_.regions_.push_back(zeroed(bytes));
      node_.mapped_ += bytes;
    }
    auto memory = node_.regions_[mapped_++];
    return Region{{memory.get(), bytes}, memory};
  }

  // As with a futex, only a wake() of the same word ends a sleep: a test then notices a missing one.
  void sleep(Word& word, uint32_t seen, Duration at_most, uint32_t bits) override {
    std::unique_lock lock(node_.mutex_);
    if (word.load(std::memory_order_seq_cst) != seen) return;
    node_.slept_on_[{&word, bits}].wait_for(lock, std::max(at_most, node_.least_sleep_));
  }

  void wake(Word& word, uint32_t bits) override {
    const std::lock_guard lock(node_.mutex_);
    ++node_.wakes_[static_cast<size_t>(rank_)];
    auto found = node_.slept_on_.lower_bound({&word, 0});
    for (; found != node_.slept_on_.end() && found->first.first == &word; ++found) {
      if ((found->first.second & bits) != 0) found->second.notify_all();
    }
  }

  bool has_ended(int rank) const override { return node_.has_ended(rank); }

  bool has_departed(int rank) const override { return node_.has_departed(rank); }

  bool dedicated_cores() const override { return node_.dedicated_cores_; }

  uint64_t cache() const override { return node_.cache(rank_); }

 private:
  FakeNode& node_;
  const int rank_;
  size_t mapped_ = 0;
  size_t groups_ = 0;
};

std::unique_ptr<NodeMemory> FakeNode::memory(int rank) { return std::make_unique<FakeMemory>(*this, rank); }

FakeNode& FakeNode::group(size_t k, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  if (k == groups_.size()) groups_.emplace_back(new FakeNode(this, ranks, job_size_));
  return *groups_[k];
}

bool FakeNode::has_ended(int rank) const {
  const auto index = static_cast<size_t>(rank);
  if (parent_ != nullptr) return parent_->has_ended(members_[index]);
  const std::lock_guard lock(mutex_);
  return ended_[index];
}

bool FakeNode::has_departed(int rank) const {
  const auto index = static_cast<size_t>(rank);
  if (parent_ != nullptr) return parent_->has_departed(members_[index]);
  const std::lock_guard lock(mutex_);
  return departed_[index];
}

void FakeNode::leave(int rank) {
  const std::lock_guard lock(mutex_);
  departed_[static_cast<size_t>(rank)] = true;
}

int FakeNode::job_rank(int rank) const {
  const int member = members_[static_cast<size_t>(rank)];
  return parent_ == nullptr ? member : parent_->job_rank(member);
}

uint64_t FakeNode::cache(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return parent_ == nullptr ? caches_[index] : parent_->cache(members_[index]);
}

void FakeNode::end(int rank) {
  const std::lock_guard lock(mutex_);
  ended_[static_cast<size_t>(rank)] = true;
}

size_t FakeNode::wakes(int rank) const {
  const std::lock_guard lock(mutex_);
  return wakes_[static_cast<size_t>(rank)];
}

uint64_t FakeNode::mapped() const {
  const std::lock_guard lock(mutex_);
  return mapped_;
}

void FakeNode::set_available_bytes(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  available_bytes_ = bytes;
}

void FakeNode::refuse_maps(int rank) {
  const std::lock_guard lock(mutex_);
  refused_[static_cast<size_t>(rank)] = true;
}

}  // namespace tarantella::transport
