#include "collective/across/operations.h"

namespace tarantella::collective::across {

Status barrier(Across& across, std::string_view name) {
  const Call call{.operation = Operation::kBarrier, .name = name};
  TNT_RETURN_IF_ERROR(across.node().agree(call));
  if (across.exchange() != nullptr) TNT_RETURN_IF_ERROR(across.exchange()->meet(call, 0));
  return across.node().agree(call);
}

}  // namespace tarantella::collective::across
