#include "collective/across/across.h"

#include <utility>

namespace tarantella::collective::across {

Result<std::unique_ptr<Across>> Across::create(Stage& node, const Nodes& nodes, Bridge* bridge) {
  auto region = node.group().map((kWidest + 1) * node.chunk(), "the collectives between nodes");
  if (!region.ok()) return region.status();
  auto exchange = bridge == nullptr ? nullptr : std::make_unique<Exchange>(*bridge);
  return std::unique_ptr<Across>(new Across(node, nodes, std::move(exchange), std::move(region).value()));
}

Across::Across(Stage& node, Nodes nodes, std::unique_ptr<Exchange> exchange, transport::Region region)
    : node_(node),
      nodes_(std::move(nodes)),
      rank_(node.group().job_rank(node.rank())),
      exchange_(std::move(exchange)),
      region_(std::move(region)),
      memory_(std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(region_.owner,
                                                                                        node.memory())) {}

}  // namespace tarantella::collective::across
