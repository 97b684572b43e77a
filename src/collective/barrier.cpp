#include "collective/operations.h"

namespace tarantella::collective {

Status barrier(Stage& stage, std::string_view name) {
  return stage.agree({.operation = Operation::kBarrier, .name = name});
}

}  // namespace tarantella::collective
