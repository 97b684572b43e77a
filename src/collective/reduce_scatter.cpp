#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/cuts.h"
#include "collective/operations.h"

namespace tarantella::collective {

Status reduce_scatter(Stage& stage, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_reduce_scatter(dtype, reduction, input, output, count, stage.size()));
  const Call call{Operation::kReduceScatter, name, dtype, reduction, 0, count, {}};
  const size_t each = count * size_of(dtype);
  const auto rank = static_cast<size_t>(stage.rank());
  return for_each_chunk(each, piece_bytes(stage.size()), [&](size_t offset, size_t piece) -> Status {
    const size_t bytes = stage.size() * piece;
    for (size_t other = 0; other < stage.size(); ++other) {
      if (other != rank)
        copy_bytes(stage.own(bytes) + other * piece, at(input, other * each + offset), piece);
    }
    TNT_RETURN_IF_ERROR(stage.agree(call));
    const Range mine{rank * piece, (rank + 1) * piece};
    stage.reduce(call, at(input, rank * each + offset), bytes, mine, at(output, offset));
    return {};
  });
}

}  // namespace tarantella::collective
