#include <algorithm>
#include <numeric>

#include "collective/across/operations.h"
#include "collective/arguments.h"
#include "collective/chunks.h"

namespace tarantella::collective::across {
namespace {

/// On the leaders: the blocks of all nodes, of which each has its own, come to result() on every node.
Status exchange_blocks(Across& across, const Call& call, bool first, const std::vector<Range>& blocks) {
  Exchange& exchange = *across.exchange();
  const Range own = blocks[exchange.node()];
  const bool is_few = std::all_of(blocks.begin(), blocks.end(), [&](const Range& each) {
    return each.bytes() <= few_bytes(across.nodes());
  });
  if (is_few) copy_bytes(exchange.few(), across.result() + own.begin, own.bytes());
  if (first || is_few) TNT_RETURN_IF_ERROR(exchange.meet(call, is_few ? own.bytes() : 0));
  std::vector<Exchange::Outgoing> sends;
  std::vector<Exchange::Incoming> receives;
  for (size_t node = 0; node < exchange.nodes(); ++node) {
    if (node == exchange.node()) continue;
    std::byte* const place = across.result() + blocks[node].begin;
    if (is_few) {
      copy_bytes(place, exchange.few_of(node), blocks[node].bytes());
    } else {
      sends.push_back({node, {across.result() + own.begin, own.bytes()}});
      receives.push_back({node, {place, blocks[node].bytes()}});
    }
  }
  return exchange.move(Stream::kResult, sends, receives, across.memory(), call);
}

}  // namespace

Status allgather(Across& across, const void* input, void* output, std::span<const uint64_t> counts,
                 DType dtype, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_allgather(dtype, counts, across.size()));
  const Nodes& nodes = across.nodes();
  Stage& node = across.node();
  if (across.piece() == 0)
    return {Code::kInvalidArgument, text("allgather between ", nodes.ranks(), " ranks: too many")};
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const Call call{Operation::kAllgather, name, dtype, Reduction::kSum, 0, total, counts};
  const std::vector<Range> targets = ranges_of(counts, dtype);
  const size_t longest = *std::max_element(counts.begin(), counts.end()) * size_of(dtype);
  return for_each_chunk(longest, across.piece(), [&](size_t offset, size_t bytes) -> Status {
    const auto part_of = [&](int rank) {
      const Range whole{0, targets[static_cast<size_t>(rank)].bytes()};
      return Range{offset, offset + bytes}.intersect(whole).bytes();
    };
    node.put(at(input, offset), part_of(across.rank()));
    TNT_RETURN_IF_ERROR(node.agree(call));
    // node by node: what a node sends is one block
    std::vector<Range> blocks;
    std::vector<size_t> places(nodes.ranks());
    size_t end = 0;
    for (size_t k = 0; k < nodes.count(); ++k) {
      const size_t begin = end;
      for (const int rank : nodes.ranks_of(k)) {
        places[static_cast<size_t>(rank)] = end;
        end += part_of(rank);
      }
      blocks.push_back({begin, end});
    }
    if (across.exchange() != nullptr) {
      for (size_t local = 0; local < node.size(); ++local) {
        const int rank = nodes.ranks_of(across.own_node())[local];
        copy_bytes(across.result() + places[static_cast<size_t>(rank)], node.of(local, part_of(rank)),
                   part_of(rank));
      }
      TNT_RETURN_IF_ERROR(exchange_blocks(across, call, offset == 0, blocks));
    }
    TNT_RETURN_IF_ERROR(node.agree(call));
    for (size_t rank = 0; rank < nodes.ranks(); ++rank) {
      copy_bytes(at(output, targets[rank].begin + offset), across.result() + places[rank],
                 part_of(static_cast<int>(rank)));
    }
    return {};
  });
}

}  // namespace tarantella::collective::across
