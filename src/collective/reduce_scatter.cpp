#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/kernels.h"
#include "collective/operations.h"

namespace tarantella::collective {

Status reduce_scatter(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
  if (input == output && input != nullptr)
    return {Code::kInvalidArgument, "reduce_scatter needs an output other than its input"};
  const Call call{Operation::kReduceScatter, name, dtype, reduction, 0, count, {}};
  const size_t each = count * size_of(dtype);
  const auto rank = static_cast<size_t>(stage.rank());
  const Range mine{rank * each, (rank + 1) * each};
  return for_each_chunk(stage.size() * each, stage.chunk(), [&](size_t offset, size_t bytes) -> Status {
    stage.put(at(input, offset), bytes);
    TNT_RETURN_IF_ERROR(stage.agree(call));
    const Range part = mine.intersect({offset, offset + bytes});
    if (part.bytes() == 0) return {};
    reduce(dtype, reduction, stage.inputs(at(input, part.begin), bytes, part.begin - offset), stage.size(),
           at(output, part.begin - mine.begin), part.bytes() / size_of(dtype));
    return {};
  });
}

}  // namespace tarantella::collective
