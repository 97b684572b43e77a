#include "launch/placement.h"

#include <algorithm>

namespace tarantella::launch {
namespace {

std::string count_of_gpus(size_t count) { return count == 1 ? "1 GPU" : text(count, " GPUs"); }

}  // namespace

Placement place_on_gpus(const Options& options, const runtime::Gpus& gpus) {
  Placement placement;
  const size_t found = options.no_gpu ? 0 : gpus.ids.size();
  const bool may_warn = !options.no_gpu && gpus.driver && !gpus.hidden_by_user;
  placement.ranks = options.ranks.value_or(std::clamp(static_cast<int>(found), 1, kMostRanks));
  const auto wanted = static_cast<size_t>(placement.ranks);
  if (wanted <= found) {
    placement.gpus.assign(gpus.ids.begin(), gpus.ids.begin() + placement.ranks);
  } else if (may_warn && !options.ranks) {
    placement.warnings.push_back(
        "no GPU found: one rank runs on the CPU; -n starts more, --no-gpu hides this warning");
  } else if (may_warn) {
    placement.warnings.push_back(
        text("there ", found == 1 ? "is " : "are ", count_of_gpus(found), " for ", wanted,
             wanted == 1 ? " rank" : " ranks",
             ": all run on the CPU; a smaller -n uses the GPUs, --no-gpu hides this warning"));
  }
  return placement;
}

void place_on_cores(Placement& placement) {
  if (placement.ranks == 1) return;
  const Result<std::vector<int>> allowed = runtime::allowed_cpus();
  if (!allowed.ok() || allowed.value().empty()) {
    placement.warnings.push_back(text("ranks are not bound to cores: ", allowed.status().message()));
    return;
  }
  placement.cores = runtime::share_cores(allowed.value(), placement.ranks);
}

}  // namespace tarantella::launch
