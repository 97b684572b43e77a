#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/operations.h"

namespace tarantella::collective {

Status broadcast(Stage& stage, void* data, size_t count, DType dtype, int root, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_broadcast(dtype, count, root, stage.size()));
  const Call call{Operation::kBroadcast,        name,  dtype, Reduction::kSum,
                  stage.group().job_rank(root), count, {}};
  return for_each_chunk(count * size_of(dtype), stage.chunk(), [&](size_t offset, size_t bytes) -> Status {
    if (stage.rank() == root) stage.put(at(data, offset), bytes);
    TNT_RETURN_IF_ERROR(stage.agree(call));
    if (stage.rank() != root) stage.copy(static_cast<size_t>(root), bytes, {0, bytes}, at(data, offset));
    return {};
  });
}

}  // namespace tarantella::collective
