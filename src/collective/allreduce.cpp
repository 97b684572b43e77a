#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/cuts.h"
#include "collective/operations.h"

namespace tarantella::collective {

namespace {

constexpr size_t kBlock = 16 * 1024;  // bytes that stay in the nearest cache

/// One chunk of an allreduce in slices: each rank reduces its slice, then all copy the others' slices.
Status reduce_slices(Stage& stage, const Call& call, const std::byte* input, std::byte* output,
                     size_t bytes) {
  const Range mine = slice_of(bytes, static_cast<size_t>(stage.rank()), stage.size());
  stage.put(input, bytes, mine);
  TNT_RETURN_IF_ERROR(stage.agree(call));
  const auto rank = static_cast<size_t>(stage.rank());
  std::byte* const result = stage.reduced(rank, bytes);
  TNT_RETURN_IF_ERROR(for_each_chunk(mine.bytes(), kBlock, [&](size_t offset, size_t part) -> Status {
    const size_t begin = mine.begin + offset;
    stage.reduce(call, input + begin, bytes, {begin, begin + part}, result + begin);
    copy_bytes(output + begin, result + begin, part);
    return {};
  }));
  TNT_RETURN_IF_ERROR(stage.agree_again(call));
  for (size_t other = 0; other < stage.size(); ++other) {
    const Range slice = slice_of(bytes, other, stage.size());
    if (other != rank) stage.copy_reduced(other, bytes, slice, output + slice.begin);
  }
  return {};
}

}  // namespace

Status allreduce(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_allreduce(dtype, reduction, input, output, count));
  const Call call{Operation::kAllreduce, name, dtype, reduction, 0, count, {}};
  return for_each_chunk(count * size_of(dtype), stage.chunk(), [&](size_t offset, size_t bytes) -> Status {
    const std::byte* own = at(input, offset);
    if (bytes >= sliced_from(stage.size())) return reduce_slices(stage, call, own, at(output, offset), bytes);
    stage.put(own, bytes);
    TNT_RETURN_IF_ERROR(stage.agree(call));
    stage.reduce(call, own, bytes, {0, bytes}, at(output, offset));
    return {};
  });
}

}  // namespace tarantella::collective
