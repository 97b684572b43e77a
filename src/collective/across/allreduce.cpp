#include "collective/across/operations.h"
#include "collective/across/reduce_ranges.h"
#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/kernels.h"

namespace tarantella::collective::across {
namespace {

/// The most bytes that nodes exchange at once between their callers' memory. What comes in takes as many.
constexpr size_t kDirect = size_t{8} << 20;
/// Values travel in the message that tells the call, which costs a copy, or from the caller's memory beside it.
constexpr size_t kCopied = size_t{64} << 10;
/// The most bytes that two nodes of one rank each give each other in one hop: no more than in parts.
constexpr size_t kOneHop = transport::kUnasked;

/// What the nodes exchange at once.
class Round {
 public:
  Round(Across& across, const Call& call, size_t bytes)
      : across_(across),
        call_(call),
        bytes_(bytes),
        widened_(size_of(dtype_of_parts(call.dtype)) / size_of(call.dtype)) {}

  /// The bytes of a node's part.
  size_t wide() const { return bytes_ * widened_; }
  bool is_few() const { return wide() <= few_bytes(across_.nodes()); }

  /// Reduces this rank's slice of what the ranks of the node show, `bytes` bytes that begin at `offset`.
  void reduce_slice(const std::byte* own, size_t offset, size_t bytes) {
    Stage& node = across_.node();
    const Range mine = slice_of(bytes * widened_, static_cast<size_t>(node.rank()), node.size());
    reduce_node(own, bytes, mine, across_.part() + offset * widened_ + mine.begin);
  }

  /// With few bytes the leaders give each other their parts, and each reduces them all into `output`.
  Status exchange_few(const std::byte* own, std::byte* output) {
    Exchange& exchange = *across_.exchange();
    reduce_node(own, bytes_, {0, wide()}, exchange.few());
    TNT_RETURN_IF_ERROR(exchange.meet(call_, wide()));
    std::vector<const std::byte*> parts;
    for (size_t node = 0; node < exchange.nodes(); ++node) parts.push_back(exchange.few_of(node));
    reduce_parts(call_.dtype, call_.reduction, parts.data(), parts.size(), across_.nodes().ranks(), output,
                 bytes_ / size_of(call_.dtype));
    return {};
  }

  /// Part j of the node's values goes to node j, which reduces it and gives the result to all, at `result`, which
  /// `owner` keeps, or the caller where it is nullptr. In one hop each node gets and reduces all values instead.
  Status exchange_many(const NodesPart& part, std::byte* result, const std::shared_ptr<const void>& owner,
                       Meeting meeting, bool in_one_hop = false) {
    Exchange& exchange = *across_.exchange();
    const auto part_of = [&](size_t node) {
      return in_one_hop ? Range{0, bytes_} : exchange.part_of(bytes_, node);
    };
    const Range mine = part_of(exchange.node());
    std::vector<Range> ranges;
    std::vector<Exchange::Outgoing> sends;
    std::vector<Exchange::Incoming> receives;
    for (size_t node = 0; node < exchange.nodes(); ++node) {
      ranges.push_back(part_of(node));
      if (in_one_hop || node == exchange.node()) continue;
      sends.push_back({node, {result + mine.begin, mine.bytes()}});
      receives.push_back({node, {result + ranges.back().begin, ranges.back().bytes()}});
    }
    TNT_RETURN_IF_ERROR(reduce_ranges(across_, call_, part, ranges, result + mine.begin, meeting));
    return exchange.move(Stream::kResult, sends, receives, owner, call_);
  }

 private:
  /// Reduces `range`, in bytes of the part, of the `bytes` bytes that the ranks of the node show.
  void reduce_node(const std::byte* own, size_t bytes, Range range, std::byte* output) {
    const size_t offset = range.begin / widened_;
    reduce_part(call_.dtype, call_.reduction, across_.node().inputs(own + offset, bytes, offset),
                across_.node().size(), output, range.bytes() / size_of(dtype_of_parts(call_.dtype)));
  }

  Across& across_;
  const Call& call_;
  const size_t bytes_;
  const size_t widened_;
};

/// Whether each node has one rank, whose values are the node's part.
bool is_direct(const Nodes& nodes, DType dtype) {
  return nodes.ranks() == nodes.count() && dtype_of_parts(dtype) == dtype;
}

/// Many bytes travel from the caller's memory, and results into it. The nodes meet while the first parts travel; two
/// nodes foresee these, as they have room for the longest.
Status allreduce_directly(Across& across, const Call& call, const void* input, void* output) {
  const Nodes& nodes = across.nodes();
  const size_t bytes = call.count * size_of(call.dtype);
  TNT_RETURN_IF_ERROR(across.node().agree(call));
  if (bytes <= std::min(kCopied, few_bytes(nodes)))
    return Round(across, call, bytes).exchange_few(at(input, 0), at(output, 0));
  const bool two = nodes.count() == 2;
  const bool in_one_hop = two && bytes <= kOneHop;
  return for_each_chunk(bytes, kDirect, [&](size_t offset, size_t part) {
    return Round(across, call, part)
        .exchange_many({at(input, offset), nullptr}, at(output, offset), nullptr,
                       {.meets = offset == 0, .longest = two ? kDirect / 2 : 0}, in_one_hop);
  });
}

}  // namespace

Status allreduce(Across& across, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_allreduce(dtype, reduction, input, output, count));
  const Call call{Operation::kAllreduce, name, dtype, reduction, 0, count, {}};
  if (is_direct(across.nodes(), dtype)) return allreduce_directly(across, call, input, output);
  Stage& node = across.node();
  return for_each_chunk(count * size_of(dtype), across.round(), [&](size_t offset, size_t bytes) -> Status {
    Round round(across, call, bytes);
    const Status shown = for_each_chunk(bytes, across.chunk(), [&](size_t from, size_t part) -> Status {
      const std::byte* own = at(input, offset + from);
      if (node.size() > 1) node.put(own, part);
      TNT_RETURN_IF_ERROR(node.agree(call));
      if (!round.is_few()) round.reduce_slice(own, from, part);
      return {};
    });
    TNT_RETURN_IF_ERROR(shown);
    std::byte* const mine = at(output, offset);
    std::byte* const complete = round.is_few() && node.size() == 1 ? mine : across.result();
    if (!round.is_few()) TNT_RETURN_IF_ERROR(node.agree(call));
    if (across.exchange() != nullptr) {
      TNT_RETURN_IF_ERROR(round.is_few() ? round.exchange_few(at(input, offset), complete)
                                         : round.exchange_many({across.part(), across.memory()}, complete,
                                                               across.memory(), {.meets = offset == 0}));
    }
    TNT_RETURN_IF_ERROR(node.agree(call));
    if (complete != mine) copy_bytes(mine, complete, bytes);
    return {};
  });
}

}  // namespace tarantella::collective::across
