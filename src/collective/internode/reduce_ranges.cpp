#include "collective/internode/reduce_ranges.h"

#include "collective/kernels.h"

namespace tarantella::collective::internode {

Status reduce_ranges(InternodeResources& internode, const CallSignature& call, const NodePartial& partial,
                     std::span<const Range> ranges, std::byte* output, ReduceRangesOptions options) {
  LeaderExchange& leaders = *internode.leader_exchange();
  const size_t width_factor = size_of(partial_dtype(call.dtype)) / size_of(call.dtype);
  const auto range_of_node = [&](size_t node) {
    return std::span(partial.values + ranges[node].begin * width_factor, ranges[node].bytes() * width_factor);
  };
  const Range mine = ranges[leaders.node_index()];
  // The other nodes may make another call: each receive then has room for the longest message of any call.
  const bool preposts_max_size = options.exchanges_calls && options.max_prepost_bytes != 0;
  const size_t each = preposts_max_size ? options.max_prepost_bytes : mine.bytes() * width_factor;
  const std::shared_ptr<std::byte[]> incoming = leaders.receive_buffer(each * leaders.nodes());
  std::vector<const std::byte*> partials;
  std::vector<LeaderExchange::Outgoing> sends;
  std::vector<LeaderExchange::Incoming> receives;
  for (size_t node = 0; node < leaders.nodes(); ++node) {
    std::byte* const place = incoming.get() + each * node;
    const bool is_own = node == leaders.node_index();
    partials.push_back(is_own ? range_of_node(node).data() : place);
    if (is_own) continue;
    sends.push_back({node, range_of_node(node)});
    receives.push_back({node, {place, each}});
  }
  using Owners = std::pair<std::shared_ptr<std::byte[]>, std::shared_ptr<const void>>;
  const auto owner = std::make_shared<Owners>(incoming, partial.owner);
  const auto transfers = leaders.start(
      options.exchanges_calls && !preposts_max_size ? MessageTag::kShard : MessageTag::kPrepostedShard, sends,
      receives, owner);
  const Status alike = options.exchanges_calls ? leaders.exchange_calls(call, 0) : Status();
  const auto what = [&call] { return describe_exchange(call); };
  const Status moved =
      preposts_max_size ? internode.link()->await(transfers, what) : leaders.await(transfers, call);
  TNT_RETURN_IF_ERROR(alike);
  TNT_RETURN_IF_ERROR(moved);
  reduce_partials(call.dtype, call.reduction, partials.data(), partials.size(), internode.nodes().ranks(),
                  output, mine.bytes() / size_of(call.dtype));
  return {};
}

}  // namespace tarantella::collective::internode
