#include "collective/across/operations.h"
#include "collective/across/reduce_ranges.h"
#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/kernels.h"

namespace tarantella::collective::across {

Status reduce_scatter(Across& across, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check_reduce_scatter(dtype, reduction, input, output, count, across.size()));
  const Nodes& nodes = across.nodes();
  Stage& node = across.node();
  if (across.piece() == 0)
    return {Code::kInvalidArgument, text("reduce_scatter between ", nodes.ranks(), " ranks: too many")};
  const Call call{Operation::kReduceScatter, name, dtype, reduction, 0, count, {}};
  const size_t each = count * size_of(dtype);
  const size_t widened = size_of(dtype_of_parts(dtype)) / size_of(dtype);
  const auto local = static_cast<size_t>(node.rank());
  return for_each_chunk(each, across.piece(), [&](size_t offset, size_t piece) -> Status {
    // node by node: what a node reduces is one range
    const size_t bytes = nodes.ranks() * piece;
    std::byte* const own = node.own(bytes);
    std::vector<Range> ranges;
    size_t end = 0;
    for (size_t k = 0; k < nodes.count(); ++k) {
      const size_t begin = end;
      for (const int rank : nodes.ranks_of(k)) {
        copy_bytes(own + end, at(input, static_cast<size_t>(rank) * each + offset), piece);
        end += piece;
      }
      ranges.push_back({begin, end});
    }
    TNT_RETURN_IF_ERROR(node.agree(call));
    const Range mine = slice_of(bytes * widened, local, node.size());
    const size_t from = mine.begin / widened;
    reduce_part(dtype, reduction, node.inputs(own + from, bytes, from), node.size(),
                across.part() + mine.begin, mine.bytes() / size_of(dtype_of_parts(dtype)));
    TNT_RETURN_IF_ERROR(node.agree(call));
    if (across.exchange() != nullptr) {
      TNT_RETURN_IF_ERROR(reduce_ranges(across, call, {across.part(), across.memory()}, ranges,
                                        across.result(), {.meets = offset == 0}));
    }
    TNT_RETURN_IF_ERROR(node.agree(call));
    copy_bytes(at(output, offset), across.result() + local * piece, piece);
    return {};
  });
}

}  // namespace tarantella::collective::across
