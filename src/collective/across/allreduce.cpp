#include "collective/across/nodes_reduction.h"
#include "collective/across/operations.h"
#include "collective/across/reduce_ranges.h"
#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/kernels.h"

namespace tarantella::collective::across {
namespace {

/// The most bytes that nodes exchange at once between their callers' memory. What comes in takes as many.
constexpr size_t kDirect = size_t{8} << 20;
constexpr size_t kHead = size_t{64} << 10;  // a multiple of all element sizes

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
  /// `owner` keeps, or the caller where it is nullptr. With `in_one_hop` each node gets and reduces all values.
  Status exchange_many(const NodesPart& part, std::byte* result, const std::shared_ptr<const void>& owner,
                       bool is_first, bool in_one_hop) {
    Exchange& exchange = *across_.exchange();
    const std::string what = text("the exchange of an allreduce \"", call_.name, "\"");
    const Range all{0, bytes_};
    const Range mine = in_one_hop ? all : exchange.part(bytes_);
    std::vector<Range> ranges;
    std::vector<Exchange::Outgoing> sends;
    std::vector<Exchange::Incoming> receives;
    for (size_t node = 0; node < exchange.nodes(); ++node) {
      ranges.push_back(in_one_hop ? all : exchange.part_of(bytes_, node));
      if (in_one_hop || node == exchange.node()) continue;
      sends.push_back({node, {result + mine.begin, mine.bytes()}});
      receives.push_back({node, {result + ranges.back().begin, ranges.back().bytes()}});
    }
    TNT_RETURN_IF_ERROR(reduce_ranges(across_, call_, part, ranges, result + mine.begin, is_first, what));
    return exchange.move(Stream::kResult, sends, receives, owner, what);
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

/// Many bytes travel from the caller's memory, and results into it. Between two nodes the first of them tell the call,
/// so all others are foreseen; more nodes meet while the first parts travel.
Status allreduce_directly(Across& across, const Call& call, const void* input, void* output) {
  const Nodes& nodes = across.nodes();
  const size_t bytes = call.count * size_of(call.dtype);
  const size_t first = bytes <= few_bytes(nodes) ? bytes : nodes.count() == 2 ? kHead : 0;
  TNT_RETURN_IF_ERROR(across.node().agree(call));
  if (first != 0 || bytes == 0)
    TNT_RETURN_IF_ERROR(Round(across, call, first).exchange_few(at(input, 0), at(output, 0)));
  if (first == bytes) return {};
  const size_t most = std::min(kDirect, nodes.count() * across.bridge()->best_message());
  return for_each_chunk(bytes - first, most, [&](size_t offset, size_t part) {
    Round round(across, call, part);
    const bool in_one_hop = nodes.count() == 2 && part <= NodesReduction::small_bytes(2);
    return round.exchange_many({at(input, first + offset), nullptr}, at(output, first + offset), nullptr,
                               first + offset == 0, in_one_hop);
  });
}

}  // namespace

Status allreduce(Across& across, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
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
                                                               across.memory(), offset == 0, false));
    }
    TNT_RETURN_IF_ERROR(node.agree(call));
    if (complete != mine) copy_bytes(mine, complete, bytes);
    return {};
  });
}

}  // namespace tarantella::collective::across
