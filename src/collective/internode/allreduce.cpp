#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/internode/cluster_communicator.h"
#include "collective/internode/reduce_ranges.h"
#include "collective/kernels.h"

namespace tarantella::collective::internode {
namespace {

/// The most bytes that nodes exchange at once between their callers' memory. What comes in takes as many.
constexpr size_t kDirect = size_t{8} << 20;
/// Up to so many bytes, values are copied into the message that tells the call; more travel beside it, from the
/// caller's memory.
constexpr size_t kInlineCopyLimit = size_t{64} << 10;
/// The most bytes that two nodes of one rank each reduce one-shot: they send no more than two-shot.
constexpr size_t kOneShot = transport::kEagerLimit;

/// The reduction of what the nodes exchange at once.
class ChunkReduction {
 public:
  ChunkReduction(InternodeResources& internode, const CallSignature& call, size_t bytes)
      : internode_(internode),
        call_(call),
        bytes_(bytes),
        width_factor_(size_of(partial_dtype(call.dtype)) / size_of(call.dtype)) {}

  size_t partial_bytes() const { return bytes_ * width_factor_; }
  bool is_inline() const { return partial_bytes() <= inline_limit(internode_.nodes()); }

  /// Reduces this rank's slice of what the ranks of the node show, `bytes` bytes that begin at `offset`.
  void reduce_slice(const std::byte* own, size_t offset, size_t bytes) {
    StagingBuffers& staging = internode_.staging();
    const Range mine = slice_of(bytes * width_factor_, static_cast<size_t>(staging.rank()), staging.size());
    reduce_node(own, bytes, mine, internode_.partial() + offset * width_factor_ + mine.begin);
  }

  /// The leaders give each other their partials inline, and each reduces them all into `output`.
  Status exchange_inline(const std::byte* own, std::byte* output) {
    LeaderExchange& leaders = *internode_.leader_exchange();
    reduce_node(own, bytes_, {0, partial_bytes()}, leaders.inline_payload());
    TNT_RETURN_IF_ERROR(leaders.exchange_calls(call_, partial_bytes()));
    std::vector<const std::byte*> partials;
    for (size_t node = 0; node < leaders.nodes(); ++node) partials.push_back(leaders.inline_payload_of(node));
    reduce_partials(call_.dtype, call_.reduction, partials.data(), partials.size(),
                    internode_.nodes().ranks(), output, bytes_ / size_of(call_.dtype));
    return {};
  }

  /// Two-shot: shard j of the node's partial goes to node j, which reduces it and gives the result to all, at `result`,
  /// which `owner` keeps. One-shot, each node gets and reduces all values instead.
  Status exchange_shards(const NodePartial& partial, std::byte* result,
                         const std::shared_ptr<const void>& owner, ReduceRangesOptions options,
                         bool one_shot = false) {
    LeaderExchange& leaders = *internode_.leader_exchange();
    const auto shard_of = [&](size_t node) {
      return one_shot ? Range{0, bytes_} : leaders.shard_of(bytes_, node);
    };
    const Range mine = shard_of(leaders.node_index());
    std::vector<Range> ranges;
    std::vector<LeaderExchange::Outgoing> sends;
    std::vector<LeaderExchange::Incoming> receives;
    for (size_t node = 0; node < leaders.nodes(); ++node) {
      ranges.push_back(shard_of(node));
      if (one_shot || node == leaders.node_index()) continue;
      sends.push_back({node, {result + mine.begin, mine.bytes()}});
      receives.push_back({node, {result + ranges.back().begin, ranges.back().bytes()}});
    }
    TNT_RETURN_IF_ERROR(reduce_ranges(internode_, call_, partial, ranges, result + mine.begin, options));
    return leaders.send_receive(MessageTag::kResult, sends, receives, owner, call_);
  }

 private:
  /// Reduces `range`, in bytes of the partial, of the `bytes` bytes that the ranks of the node show.
  void reduce_node(const std::byte* own, size_t bytes, Range range, std::byte* output) {
    const size_t offset = range.begin / width_factor_;
    reduce_to_partial(call_.dtype, call_.reduction, internode_.staging().inputs(own + offset, bytes, offset),
                      internode_.staging().size(), output,
                      range.bytes() / size_of(partial_dtype(call_.dtype)));
  }

  InternodeResources& internode_;
  const CallSignature& call_;
  const size_t bytes_;
  const size_t width_factor_;  ///< bytes of a partial for each byte of the result: accumulation may be wider
};

/// Whether each node has one rank, whose values are the node's partial.
bool is_direct(const NodeMap& nodes, DType dtype) {
  return nodes.ranks() == nodes.count() && partial_dtype(dtype) == dtype;
}

/// Many bytes travel from the caller's memory, and results into it. The nodes exchange their calls while the first
/// shards travel; two nodes pre-post receives for these, as long as the longest shard of any call.
Status allreduce_directly(InternodeResources& internode, const CallSignature& call, const void* input,
                          void* output, const std::shared_ptr<const void>& owner) {
  const NodeMap& nodes = internode.nodes();
  const size_t bytes = call.count * size_of(call.dtype);
  TNT_RETURN_IF_ERROR(internode.staging().exchange(call));
  if (bytes <= std::min(kInlineCopyLimit, inline_limit(nodes)))
    return ChunkReduction(internode, call, bytes).exchange_inline(at(input, 0), at(output, 0));
  const bool two = nodes.count() == 2;
  const bool one_shot = two && bytes <= kOneShot;
  return for_each_chunk(bytes, kDirect, [&](size_t offset, size_t part) {
    return ChunkReduction(internode, call, part)
        .exchange_shards({at(input, offset), owner}, at(output, offset), owner,
                         {.exchanges_calls = offset == 0, .max_prepost_bytes = two ? kDirect / 2 : 0},
                         one_shot);
  });
}

}  // namespace

Status ClusterCommunicator::allreduce(const void* input, void* output, size_t count, DType dtype,
                                      Reduction reduction, std::string_view name,
                                      const std::shared_ptr<const void>& owner) {
  InternodeResources& internode = *internode_;
  TNT_RETURN_IF_ERROR(check_allreduce(dtype, reduction, input, output, count));
  const CallSignature call{Operation::kAllreduce, name, dtype, reduction, 0, count, {}};
  if (is_direct(internode.nodes(), dtype)) {
    const size_t bytes = count * size_of(dtype);
    if (owner != nullptr || bytes == 0) return allreduce_directly(internode, call, input, output, owner);
    const std::shared_ptr<std::byte[]> copy(new std::byte[bytes]);
    copy_bytes(copy.get(), at(input, 0), bytes);
    TNT_RETURN_IF_ERROR(allreduce_directly(internode, call, copy.get(), copy.get(), copy));
    copy_bytes(at(output, 0), copy.get(), bytes);
    return {};
  }
  StagingBuffers& staging = internode.staging();
  return for_each_chunk(
      count * size_of(dtype), internode.exchange_chunk(), [&](size_t offset, size_t bytes) -> Status {
        ChunkReduction chunk(internode, call, bytes);
        const Status shown =
            for_each_chunk(bytes, internode.chunk(), [&](size_t from, size_t part) -> Status {
              const std::byte* own = at(input, offset + from);
              if (staging.size() > 1) staging.write(own, part);
              TNT_RETURN_IF_ERROR(staging.exchange(call));
              if (!chunk.is_inline()) chunk.reduce_slice(own, from, part);
              return {};
            });
        TNT_RETURN_IF_ERROR(shown);
        std::byte* const mine = at(output, offset);
        std::byte* const complete = chunk.is_inline() && staging.size() == 1 ? mine : internode.result();
        if (!chunk.is_inline()) TNT_RETURN_IF_ERROR(staging.exchange(call));
        if (internode.leader_exchange() != nullptr) {
          TNT_RETURN_IF_ERROR(chunk.is_inline() ? chunk.exchange_inline(at(input, offset), complete)
                                                : chunk.exchange_shards(
                                                      {internode.partial(), internode.memory()}, complete,
                                                      internode.memory(), {.exchanges_calls = offset == 0}));
        }
        TNT_RETURN_IF_ERROR(staging.exchange(call));
        if (complete != mine) copy_bytes(mine, complete, bytes);
        return {};
      });
}

}  // namespace tarantella::collective::internode
