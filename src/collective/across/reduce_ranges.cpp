#include "collective/across/reduce_ranges.h"

#include "collective/kernels.h"

namespace tarantella::collective::across {

Status reduce_ranges(Across& across, const Call& call, const NodesPart& part, std::span<const Range> ranges,
                     std::byte* output, Meeting meeting) {
  Exchange& exchange = *across.exchange();
  const size_t widened = size_of(dtype_of_parts(call.dtype)) / size_of(call.dtype);
  const auto part_of = [&](size_t node) {
    return std::span(part.values + ranges[node].begin * widened, ranges[node].bytes() * widened);
  };
  const Range mine = ranges[exchange.node()];
  const bool has_room = meeting.meets && meeting.longest != 0;  // for the parts of any call
  const size_t each = has_room ? meeting.longest : mine.bytes() * widened;
  const std::shared_ptr<std::byte[]> incoming = exchange.room(each * exchange.nodes());
  std::vector<const std::byte*> parts;
  std::vector<Exchange::Outgoing> sends;
  std::vector<Exchange::Incoming> receives;
  for (size_t node = 0; node < exchange.nodes(); ++node) {
    std::byte* const place = incoming.get() + each * node;
    const bool is_own = node == exchange.node();
    parts.push_back(is_own ? part_of(node).data() : place);
    if (is_own) continue;
    sends.push_back({node, part_of(node)});
    receives.push_back({node, {place, each}});
  }
  using Owners = std::pair<std::shared_ptr<std::byte[]>, std::shared_ptr<const void>>;
  const auto owner = std::make_shared<Owners>(incoming, part.owner);
  const auto requests =
      exchange.start(meeting.meets && !has_room ? Stream::kPart : Stream::kMore, sends, receives, owner);
  const Status alike = meeting.meets ? exchange.meet(call, 0) : Status();
  const auto what = [&call] { return describe_exchange(call); };
  const Status moved = has_room ? across.bridge()->await(requests, what) : exchange.await(requests, call);
  TNT_RETURN_IF_ERROR(alike);
  TNT_RETURN_IF_ERROR(moved);
  reduce_parts(call.dtype, call.reduction, parts.data(), parts.size(), across.nodes().ranks(), output,
               mine.bytes() / size_of(call.dtype));
  return {};
}

}  // namespace tarantella::collective::across
