#include "collective/across/operations.h"

namespace tarantella::collective::across {

Status agree(Across& across, const Call& call) {
  TNT_RETURN_IF_ERROR(across.node().agree(call));
  if (across.exchange() != nullptr) TNT_RETURN_IF_ERROR(across.exchange()->meet(call, 0));
  return across.node().agree(call);
}

Status barrier(Across& across, std::string_view name) {
  return agree(across, {.operation = Operation::kBarrier, .name = name});
}

}  // namespace tarantella::collective::across
