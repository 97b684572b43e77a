#include "collective/node_communicator.h"

#include <algorithm>
#include <utility>

#include "collective/shared_memory_reduction.h"

namespace tarantella::collective {

Status check_split(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) return {Code::kInvalidArgument, "a group needs at least one rank"};
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank) {
    if (*rank < 0 || *rank >= size)
      return {Code::kInvalidArgument, text("a group with rank ", *rank, ": ranks are 0 to ", size - 1)};
    if (std::find(ranks.begin(), rank, *rank) != rank)
      return {Code::kInvalidArgument, text("a group contains rank ", *rank, " twice")};
  }
  return {};
}

Result<std::unique_ptr<NodeCommunicator>> NodeCommunicator::create(
    std::unique_ptr<transport::NodeMemory> memory, GroupOptions options) {
  auto group = NodeGroup::create(std::move(memory), options);
  if (!group.ok()) return group.status();
  return create(std::move(group).value());
}

Result<std::unique_ptr<NodeCommunicator>> NodeCommunicator::create(std::shared_ptr<NodeGroup> group) {
  auto staging = StagingBuffers::create(*group);
  if (!staging.ok()) return staging.status();
  return std::unique_ptr<NodeCommunicator>(
      new NodeCommunicator(std::move(group), std::move(staging).value()));
}

Result<std::unique_ptr<Communicator>> NodeCommunicator::split(const std::vector<int>& ranks) {
  TNT_RETURN_IF_ERROR(check_split(ranks, size()));
  const std::vector<uint64_t> numbers(ranks.begin(), ranks.end());
  TNT_RETURN_IF_ERROR(
      compare_call({.operation = Operation::kGroup, .count = numbers.size(), .counts = numbers}));
  auto memory = group().memory().group(ranks);
  if (!memory.ok()) return group().fail_in("the creation of a group", memory.status());
  if (memory.value() == nullptr) return std::unique_ptr<Communicator>();
  auto subgroup =
      NodeGroup::create(std::move(memory).value(), group().options(), group().creator_thread(), &group());
  if (!subgroup.ok()) return subgroup.status();
  auto made = create(subgroup.value());
  if (!made.ok()) return made.status();
  subgroup.value()->stand_alone();
  return std::unique_ptr<Communicator>(std::move(made).value());
}

Communicator::MemoryNeed NodeCommunicator::memory_for(size_t bytes) const {
  return {SharedMemoryReduction::memory_bytes(bytes, size()), group().memory().available_bytes()};
}

Result<std::unique_ptr<BucketReduction>> NodeCommunicator::make_reduction(std::vector<Bucket> buckets,
                                                                          const std::string& name,
                                                                          StepCheck) {
  auto made = SharedMemoryReduction::create(group(), std::move(buckets), name);
  if (!made.ok()) return made.status();
  return std::unique_ptr<BucketReduction>(std::move(made).value());
}

}  // namespace tarantella::collective
