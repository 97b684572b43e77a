#include <algorithm>

#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/internode/cluster_communicator.h"

namespace tarantella::collective::internode {
namespace {

/// A scatter, then an allgather: the root's node gives each node its shard, which gives it to all. No node sends
/// everything to everybody.
Status spread(InternodeResources& internode, const CallSignature& call, std::byte* all, size_t bytes,
              size_t root) {
  LeaderExchange& leaders = *internode.leader_exchange();
  const auto shard_of = [&](size_t node) {
    const Range range = leaders.shard_of(bytes, node);
    return std::span(all + range.begin, range.bytes());
  };
  const size_t own = leaders.node_index();
  std::vector<LeaderExchange::Outgoing> shards, results_out;
  std::vector<LeaderExchange::Incoming> results_in;
  for (size_t node = 0; node < leaders.nodes(); ++node) {
    if (node == own) continue;
    if (own == root) shards.push_back({node, shard_of(node)});
    if (node != root) results_out.push_back({node, shard_of(own)});
    if (own != root) results_in.push_back({node, shard_of(node)});
  }
  const auto memory = internode.memory();
  if (own == root) {
    TNT_RETURN_IF_ERROR(leaders.send_receive(MessageTag::kShard, shards, {}, memory, call));
  } else {
    TNT_RETURN_IF_ERROR(leaders.send_receive(MessageTag::kShard, {}, {{root, shard_of(own)}}, memory, call));
  }
  return leaders.send_receive(MessageTag::kResult, results_out, results_in, memory, call);
}

/// On the leaders: `shown`, of node `from`, comes to result() on all other nodes.
Status broadcast_between_nodes(InternodeResources& internode, const CallSignature& call,
                               const std::byte* shown, bool first, size_t bytes, size_t from) {
  LeaderExchange& leaders = *internode.leader_exchange();
  const bool is_inline = bytes <= inline_limit(internode.nodes());
  if (is_inline && shown != nullptr) copy_bytes(leaders.inline_payload(), shown, bytes);
  if (first || is_inline)
    TNT_RETURN_IF_ERROR(leaders.exchange_calls(call, is_inline && shown != nullptr ? bytes : 0));
  if (!is_inline) {
    if (shown != nullptr) copy_bytes(internode.result(), shown, bytes);
    return spread(internode, call, internode.result(), bytes, from);
  }
  if (shown == nullptr) copy_bytes(internode.result(), leaders.inline_payload_of(from), bytes);
  return {};
}

}  // namespace

Status ClusterCommunicator::broadcast(void* data, size_t count, DType dtype, int root,
                                      std::string_view name) {
  InternodeResources& internode = *internode_;
  TNT_RETURN_IF_ERROR(check_broadcast(dtype, count, root, internode.size()));
  const CallSignature call{Operation::kBroadcast, name, dtype, Reduction::kSum, root, count, {}};
  StagingBuffers& staging = internode.staging();
  const size_t from = internode.nodes().node_of(root);
  const std::vector<int>& near = internode.nodes().ranks_of(from);
  const auto place = static_cast<size_t>(std::find(near.begin(), near.end(), root) - near.begin());
  const bool is_near = internode.own_node() == from;
  return for_each_chunk(
      count * size_of(dtype), internode.chunk(), [&](size_t offset, size_t bytes) -> Status {
        if (internode.rank() == root) staging.write(at(data, offset), bytes);
        TNT_RETURN_IF_ERROR(staging.exchange(call));
        const std::byte* const shown = is_near ? staging.peer_chunk(place, bytes) : nullptr;
        if (is_near && internode.rank() != root) copy_bytes(at(data, offset), shown, bytes);
        if (internode.leader_exchange() != nullptr)
          TNT_RETURN_IF_ERROR(broadcast_between_nodes(internode, call, shown, offset == 0, bytes, from));
        TNT_RETURN_IF_ERROR(staging.exchange(call));
        if (!is_near) copy_bytes(at(data, offset), internode.result(), bytes);
        return {};
      });
}

}  // namespace tarantella::collective::internode
