#include <algorithm>
#include <numeric>

#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/internode/cluster_communicator.h"

namespace tarantella::collective::internode {
namespace {

/// On the leaders: the segments of all nodes, of which each has its own, come to result() on every node.
Status exchange_segments(InternodeResources& internode, const CallSignature& call, bool first,
                         const std::vector<Range>& segments) {
  LeaderExchange& leaders = *internode.leader_exchange();
  const Range own = segments[leaders.node_index()];
  const bool is_inline = std::all_of(segments.begin(), segments.end(), [&](const Range& each) {
    return each.bytes() <= inline_limit(internode.nodes());
  });
  if (is_inline) copy_bytes(leaders.inline_payload(), internode.result() + own.begin, own.bytes());
  if (first || is_inline) TNT_RETURN_IF_ERROR(leaders.exchange_calls(call, is_inline ? own.bytes() : 0));
  std::vector<LeaderExchange::Outgoing> sends;
  std::vector<LeaderExchange::Incoming> receives;
  for (size_t node = 0; node < leaders.nodes(); ++node) {
    if (node == leaders.node_index()) continue;
    std::byte* const place = internode.result() + segments[node].begin;
    if (is_inline) {
      copy_bytes(place, leaders.inline_payload_of(node), segments[node].bytes());
    } else {
      sends.push_back({node, {internode.result() + own.begin, own.bytes()}});
      receives.push_back({node, {place, segments[node].bytes()}});
    }
  }
  return leaders.send_receive(MessageTag::kResult, sends, receives, internode.memory(), call);
}

}  // namespace

Status ClusterCommunicator::allgather(const void* input, void* output, std::span<const uint64_t> counts,
                                      DType dtype, std::string_view name) {
  InternodeResources& internode = *internode_;
  TNT_RETURN_IF_ERROR(check_allgather(dtype, counts, internode.size()));
  const NodeMap& nodes = internode.nodes();
  StagingBuffers& staging = internode.staging();
  if (internode.bytes_per_rank() == 0)
    return {Code::kInvalidArgument, text("allgather between ", nodes.ranks(), " ranks: too many")};
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const CallSignature call{Operation::kAllgather, name, dtype, Reduction::kSum, 0, total, counts};
  const std::vector<Range> targets = ranges_of(counts, dtype);
  const size_t longest = *std::max_element(counts.begin(), counts.end()) * size_of(dtype);
  return for_each_chunk(longest, internode.bytes_per_rank(), [&](size_t offset, size_t bytes) -> Status {
    const auto bytes_of = [&](int rank) {
      const Range whole{0, targets[static_cast<size_t>(rank)].bytes()};
      return Range{offset, offset + bytes}.intersect(whole).bytes();
    };
    staging.write(at(input, offset), bytes_of(internode.rank()));
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    // node by node: what a node sends is one segment
    std::vector<Range> segments;
    std::vector<size_t> places(nodes.ranks());
    size_t end = 0;
    for (size_t k = 0; k < nodes.count(); ++k) {
      const size_t begin = end;
      for (const int rank : nodes.ranks_of(k)) {
        places[static_cast<size_t>(rank)] = end;
        end += bytes_of(rank);
      }
      segments.push_back({begin, end});
    }
    if (internode.leader_exchange() != nullptr) {
      for (size_t local = 0; local < staging.size(); ++local) {
        const int rank = nodes.ranks_of(internode.own_node())[local];
        copy_bytes(internode.result() + places[static_cast<size_t>(rank)],
                   staging.peer_chunk(local, bytes_of(rank)), bytes_of(rank));
      }
      TNT_RETURN_IF_ERROR(exchange_segments(internode, call, offset == 0, segments));
    }
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    for (size_t rank = 0; rank < nodes.ranks(); ++rank) {
      copy_bytes(at(output, targets[rank].begin + offset), internode.result() + places[rank],
                 bytes_of(static_cast<int>(rank)));
    }
    return {};
  });
}

}  // namespace tarantella::collective::internode
