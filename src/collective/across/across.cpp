#include "collective/across/across.h"

#include <utility>

namespace tarantella::collective::across {

Result<std::unique_ptr<Across>> Across::create(Stage& node, const Nodes& nodes,
                                               std::shared_ptr<Bridge> bridge) {
  auto region = node.group().map((kWidest + 1) * round_bytes(nodes), "the collectives between nodes");
  if (!region.ok()) return region.status();
  return std::unique_ptr<Across>(new Across(node, nodes, std::move(bridge), std::move(region).value()));
}

Across::Across(Stage& node, Nodes nodes, std::shared_ptr<Bridge> bridge, transport::Region region)
    : node_(node),
      nodes_(std::move(nodes)),
      rank_(node.group().job_rank(node.rank())),
      bridge_(std::move(bridge)),
      exchange_(bridge_ == nullptr ? nullptr : std::make_unique<Exchange>(*bridge_)),
      region_(std::move(region)),
      memory_(std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(region_.owner,
                                                                                        node.memory())) {}

}  // namespace tarantella::collective::across
