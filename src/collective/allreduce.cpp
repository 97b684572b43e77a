#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/node_communicator.h"

namespace tarantella::collective {

namespace {

constexpr size_t kBlock = 16 * 1024;  // bytes that stay in the nearest cache

/// One chunk of an allreduce in slices: each rank reduces its slice, then all copy the others' slices.
Status reduce_slices(StagingBuffers& staging, const CallSignature& call, const std::byte* input,
                     std::byte* output, size_t bytes) {
  const Range mine = slice_of(bytes, static_cast<size_t>(staging.rank()), staging.size());
  staging.write(input, bytes, mine);
  TNT_RETURN_IF_ERROR(staging.exchange(call));
  const auto rank = static_cast<size_t>(staging.rank());
  std::byte* const result = staging.result_chunk(rank, bytes);
  TNT_RETURN_IF_ERROR(for_each_chunk(mine.bytes(), kBlock, [&](size_t offset, size_t part) -> Status {
    const size_t begin = mine.begin + offset;
    staging.reduce(call, input + begin, bytes, {begin, begin + part}, result + begin);
    copy_bytes(output + begin, result + begin, part);
    return {};
  }));
  TNT_RETURN_IF_ERROR(staging.sync_round(call));
  for (size_t other = 0; other < staging.size(); ++other) {
    const Range slice = slice_of(bytes, other, staging.size());
    if (other != rank) staging.copy_result(other, bytes, slice, output + slice.begin);
  }
  return {};
}

}  // namespace

Status NodeCommunicator::allreduce(const void* input, void* output, size_t count, DType dtype,
                                   Reduction reduction, std::string_view name,
                                   const std::shared_ptr<const void>&) {
  StagingBuffers& staging = *staging_;
  TNT_RETURN_IF_ERROR(check_allreduce(dtype, reduction, input, output, count));
  const CallSignature call{Operation::kAllreduce, name, dtype, reduction, 0, count, {}};
  return for_each_chunk(count * size_of(dtype), staging.chunk(), [&](size_t offset, size_t bytes) -> Status {
    const std::byte* own = at(input, offset);
    if (bytes >= sliced_from(staging.size()))
      return reduce_slices(staging, call, own, at(output, offset), bytes);
    staging.write(own, bytes);
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    staging.reduce(call, own, bytes, {0, bytes}, at(output, offset));
    return {};
  });
}

}  // namespace tarantella::collective
