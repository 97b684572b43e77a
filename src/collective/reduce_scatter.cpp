#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/node_communicator.h"

namespace tarantella::collective {

Status NodeCommunicator::reduce_scatter(const void* input, void* output, size_t count, DType dtype,
                                        Reduction reduction, std::string_view name) {
  StagingBuffers& staging = *staging_;
  TNT_RETURN_IF_ERROR(check_reduce_scatter(dtype, reduction, input, output, count, staging.size()));
  const CallSignature call{Operation::kReduceScatter, name, dtype, reduction, 0, count, {}};
  const size_t each = count * size_of(dtype);
  const auto rank = static_cast<size_t>(staging.rank());
  return for_each_chunk(each, bytes_per_rank(staging.size()), [&](size_t offset, size_t per_rank) -> Status {
    const size_t bytes = staging.size() * per_rank;
    for (size_t other = 0; other < staging.size(); ++other) {
      if (other != rank)
        copy_bytes(staging.own_chunk(bytes) + other * per_rank, at(input, other * each + offset), per_rank);
    }
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    const Range mine{rank * per_rank, (rank + 1) * per_rank};
    staging.reduce(call, at(input, rank * each + offset), bytes, mine, at(output, offset));
    return {};
  });
}

}  // namespace tarantella::collective
