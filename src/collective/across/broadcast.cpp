#include <algorithm>

#include "collective/across/operations.h"
#include "collective/arguments.h"
#include "collective/chunks.h"

namespace tarantella::collective::across {
namespace {

/// The root's node gives each node its part, which gives it to all: no node sends everything to everybody.
Status spread(Across& across, const Call& call, std::byte* all, size_t bytes, size_t root) {
  Exchange& exchange = *across.exchange();
  const auto part_of = [&](size_t node) {
    const Range range = exchange.part_of(bytes, node);
    return std::span(all + range.begin, range.bytes());
  };
  const size_t own = exchange.node();
  std::vector<Exchange::Outgoing> parts, results_out;
  std::vector<Exchange::Incoming> results_in;
  for (size_t node = 0; node < exchange.nodes(); ++node) {
    if (node == own) continue;
    if (own == root) parts.push_back({node, part_of(node)});
    if (node != root) results_out.push_back({node, part_of(own)});
    if (own != root) results_in.push_back({node, part_of(node)});
  }
  const auto memory = across.memory();
  if (own == root) {
    TNT_RETURN_IF_ERROR(exchange.move(Stream::kPart, parts, {}, memory, call));
  } else {
    TNT_RETURN_IF_ERROR(exchange.move(Stream::kPart, {}, {{root, part_of(own)}}, memory, call));
  }
  return exchange.move(Stream::kResult, results_out, results_in, memory, call);
}

/// On the leaders: `shown`, of node `from`, comes to result() on all other nodes.
Status exchange(Across& across, const Call& call, const std::byte* shown, bool first, size_t bytes,
                size_t from) {
  Exchange& exchange = *across.exchange();
  const bool is_few = bytes <= few_bytes(across.nodes());
  if (is_few && shown != nullptr) copy_bytes(exchange.few(), shown, bytes);
  if (first || is_few) TNT_RETURN_IF_ERROR(exchange.meet(call, is_few && shown != nullptr ? bytes : 0));
  if (!is_few) {
    if (shown != nullptr) copy_bytes(across.result(), shown, bytes);
    return spread(across, call, across.result(), bytes, from);
  }
  if (shown == nullptr) copy_bytes(across.result(), exchange.few_of(from), bytes);
  return {};
}

}  // namespace

Status broadcast(Across& across, void* data, size_t count, DType dtype, int root, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_broadcast(dtype, count, root, across.size()));
  const Call call{Operation::kBroadcast, name, dtype, Reduction::kSum, root, count, {}};
  Stage& node = across.node();
  const size_t from = across.nodes().node_of(root);
  const std::vector<int>& near = across.nodes().ranks_of(from);
  const auto place = static_cast<size_t>(std::find(near.begin(), near.end(), root) - near.begin());
  const bool is_near = across.own_node() == from;
  return for_each_chunk(count * size_of(dtype), across.chunk(), [&](size_t offset, size_t bytes) -> Status {
    if (across.rank() == root) node.put(at(data, offset), bytes);
    TNT_RETURN_IF_ERROR(node.agree(call));
    const std::byte* const shown = is_near ? node.of(place, bytes) : nullptr;
    if (is_near && across.rank() != root) copy_bytes(at(data, offset), shown, bytes);
    if (across.exchange() != nullptr)
      TNT_RETURN_IF_ERROR(exchange(across, call, shown, offset == 0, bytes, from));
    TNT_RETURN_IF_ERROR(node.agree(call));
    if (!is_near) copy_bytes(at(data, offset), across.result(), bytes);
    return {};
  });
}

}  // namespace tarantella::collective::across
