#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/node_communicator.h"

namespace tarantella::collective {

Status NodeCommunicator::broadcast(void* data, size_t count, DType dtype, int root, std::string_view name) {
  StagingBuffers& staging = *staging_;
  TNT_RETURN_IF_ERROR(check_broadcast(dtype, count, root, staging.size()));
  const CallSignature call{Operation::kBroadcast,          name,  dtype, Reduction::kSum,
                           staging.group().job_rank(root), count, {}};
  return for_each_chunk(count * size_of(dtype), staging.chunk(), [&](size_t offset, size_t bytes) -> Status {
    if (staging.rank() == root) staging.write(at(data, offset), bytes);
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    if (staging.rank() != root) staging.copy(static_cast<size_t>(root), bytes, {0, bytes}, at(data, offset));
    return {};
  });
}

}  // namespace tarantella::collective
