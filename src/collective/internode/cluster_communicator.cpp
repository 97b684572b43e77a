#include "collective/internode/cluster_communicator.h"

#include <algorithm>
#include <utility>

#include "collective/internode/internode_reduction.h"
#include "collective/shared_memory_reduction.h"

namespace tarantella::collective::internode {

Result<std::unique_ptr<ClusterCommunicator>> ClusterCommunicator::create(
    std::unique_ptr<transport::NodeMemory> memory, std::unique_ptr<transport::Endpoint> endpoint,
    const NodeMap& nodes, GroupOptions options, LeaderLinkOptions link_options) {
  auto node_communicator = NodeCommunicator::create(std::move(memory), options);
  if (!node_communicator.ok()) return node_communicator.status();
  const std::shared_ptr<NodeGroup>& group = node_communicator.value()->share_group();
  auto notifications = RemoteNotifications::create(*group, nodes);
  if (!notifications.ok()) return notifications.status();
  const std::shared_ptr<RemoteNotifications> shared = std::move(notifications).value();
  std::shared_ptr<LeaderLink> link;
  if (group->rank() == 0)
    link = std::make_shared<LeaderLink>(group, std::move(endpoint), nodes, shared, link_options);
  auto internode = InternodeResources::create(node_communicator.value()->staging(), nodes, link);
  if (!internode.ok()) return internode.status();
  return std::unique_ptr<ClusterCommunicator>(new ClusterCommunicator(
      std::move(node_communicator).value(), shared, std::move(link), std::move(internode).value()));
}

Status ClusterCommunicator::compare_call(const CallSignature& call) {
  TNT_RETURN_IF_ERROR(node_communicator_->compare_call(call));
  if (internode_->leader_exchange() != nullptr)
    TNT_RETURN_IF_ERROR(internode_->leader_exchange()->exchange_calls(call, 0));
  return node_communicator_->compare_call(call);
}

Result<std::unique_ptr<Communicator>> ClusterCommunicator::split(const std::vector<int>& ranks) {
  TNT_RETURN_IF_ERROR(check_split(ranks, size()));
  const size_t node = nodes().node_of(ranks[0]);
  std::vector<int> places;  // on their node
  for (const int rank : ranks) {
    if (nodes().node_of(rank) != node)
      return Status(Code::kInvalidArgument, text("a group cannot contain ranks ", ranks[0], " and ", rank,
                                                 ", which run on different machines: all ranks of a group "
                                                 "must be on one machine"));
    const std::vector<int>& near = nodes().ranks_of(node);
    places.push_back(static_cast<int>(std::find(near.begin(), near.end(), rank) - near.begin()));
  }
  const std::vector<uint64_t> numbers(ranks.begin(), ranks.end());
  TNT_RETURN_IF_ERROR(
      compare_call({.operation = Operation::kGroup, .count = numbers.size(), .counts = numbers}));
  if (node != internode_->own_node()) return std::unique_ptr<Communicator>();
  return node_communicator_->split(places);
}

size_t ClusterCommunicator::split_bytes(size_t threshold) const {
  return InternodeReduction::split_bytes(*internode_, threshold);
}

Result<std::unique_ptr<BucketReduction>> ClusterCommunicator::make_reduction(std::vector<Bucket> buckets,
                                                                             const std::string& name,
                                                                             StepCheck step_check) {
  auto intranode = SharedMemoryReduction::create(group(), buckets, name);
  if (!intranode.ok()) return group().fail_in(name, intranode.status());  // other nodes may have had room
  TagAllocator& tags = *internode_->tags();
  uint32_t first_tag = 0;
  for (uint32_t is_retired = 1; is_retired != 0;) {  // rank 0 keeps the tags that are, so no plan gets them
    first_tag = rank() == 0 ? tags.allocate(buckets.size()).value_or(0) : 0;
    TNT_RETURN_IF_ERROR(broadcast(&first_tag, 1, DType::kUInt32, 0, name));
    if (first_tag == 0)
      return Status(Code::kInvalidArgument,
                    text(name, " has too many buckets (", buckets.size(),
                         ") for a job on several machines; raise TNT_FUSION_THRESHOLD"));
    const bool is_held =
        rank() != 0 && tags.overlaps(first_tag, buckets.size());  // by a plan that rank 0 released
    is_retired = is_held || tags.has_retired(first_tag, buckets.size()) ? 1 : 0;
    TNT_RETURN_IF_ERROR(allreduce(&is_retired, &is_retired, 1, DType::kUInt32, Reduction::kMax, name));
  }
  auto made = InternodeReduction::create(*internode_, std::move(intranode).value(), std::move(buckets), name,
                                         first_tag, step_check);
  return made.ok() ? std::move(made) : group().fail_in(name, made.status());
}

void ClusterCommunicator::notify(const std::string& name, uint32_t value) {
  group().notify(name, value);
  if (link_ != nullptr) link_->notify(RemoteNotifications::make(name, value, calls_));
}

template <typename Here, typename There>
auto ClusterCommunicator::of_notifier(int from, Here here, There there) -> decltype(here(from)) {
  const size_t node = nodes().node_of(from);
  if (node == internode_->own_node()) {
    const std::vector<int>& near = nodes().ranks_of(node);
    return here(static_cast<int>(std::find(near.begin(), near.end(), from) - near.begin()));
  }
  if (from == nodes().leader(node)) return there();
  return Status(Code::kInvalidArgument, text("a rank cannot wait for a notification of rank ", from,
                                             ", which is on another machine and not its first rank"));
}

Result<uint32_t> ClusterCommunicator::wait_notification(int from, const std::string& name) {
  return of_notifier(
      from, [&](int near) { return group().wait_notification(near, name); },
      [&] { return notifications_->await(from, name, calls_); });
}

Result<std::optional<uint32_t>> ClusterCommunicator::find_notification(int from, const std::string& name) {
  return of_notifier(
      from, [&](int near) { return group().find_notification(near, name); },
      [&] { return notifications_->find(from, name); });
}

void ClusterCommunicator::begin_call() {
  ++calls_;
  if (link_ != nullptr) link_->set_calls(calls_);
}

std::optional<Duration> ClusterCommunicator::progress() {
  if (link_ == nullptr) return std::nullopt;
  return link_->progress();
}

Duration ClusterCommunicator::shorten_loss_timeout() {
  if (link_ != nullptr) link_->shorten_loss_timeout();
  return 4s;
}

void ClusterCommunicator::close() {
  if (link_ != nullptr) link_->leave();
  Communicator::close();
}

}  // namespace tarantella::collective::internode
