#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/internode/cluster_communicator.h"
#include "collective/internode/reduce_ranges.h"
#include "collective/kernels.h"

namespace tarantella::collective::internode {

Status ClusterCommunicator::reduce_scatter(const void* input, void* output, size_t count, DType dtype,
                                           Reduction reduction, std::string_view name) {
  InternodeResources& internode = *internode_;
  TNT_RETURN_IF_ERROR(check_reduce_scatter(dtype, reduction, input, output, count, internode.size()));
  const NodeMap& nodes = internode.nodes();
  StagingBuffers& staging = internode.staging();
  if (internode.bytes_per_rank() == 0)
    return {Code::kInvalidArgument, text("reduce_scatter between ", nodes.ranks(), " ranks: too many")};
  const CallSignature call{Operation::kReduceScatter, name, dtype, reduction, 0, count, {}};
  const size_t each = count * size_of(dtype);
  const size_t width_factor = size_of(partial_dtype(dtype)) / size_of(dtype);
  const auto local = static_cast<size_t>(staging.rank());
  return for_each_chunk(each, internode.bytes_per_rank(), [&](size_t offset, size_t per_rank) -> Status {
    // node by node: what a node reduces is one range
    const size_t bytes = nodes.ranks() * per_rank;
    std::byte* const own = staging.own_chunk(bytes);
    std::vector<Range> ranges;
    size_t end = 0;
    for (size_t k = 0; k < nodes.count(); ++k) {
      const size_t begin = end;
      for (const int rank : nodes.ranks_of(k)) {
        copy_bytes(own + end, at(input, static_cast<size_t>(rank) * each + offset), per_rank);
        end += per_rank;
      }
      ranges.push_back({begin, end});
    }
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    const Range mine = slice_of(bytes * width_factor, local, staging.size());
    const size_t from = mine.begin / width_factor;
    reduce_to_partial(dtype, reduction, staging.inputs(own + from, bytes, from), staging.size(),
                      internode.partial() + mine.begin, mine.bytes() / size_of(partial_dtype(dtype)));
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    if (internode.leader_exchange() != nullptr) {
      TNT_RETURN_IF_ERROR(reduce_ranges(internode, call, {internode.partial(), internode.memory()}, ranges,
                                        internode.result(), {.exchanges_calls = offset == 0}));
    }
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    copy_bytes(at(output, offset), internode.result() + local * per_rank, per_rank);
    return {};
  });
}

}  // namespace tarantella::collective::internode
