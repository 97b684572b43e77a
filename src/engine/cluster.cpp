#include "engine/cluster.h"

#include <utility>

namespace tarantella::engine {

namespace across = collective::across;

Result<std::unique_ptr<Cluster>> Cluster::create(std::unique_ptr<transport::Memory> memory,
                                                 std::unique_ptr<transport::Wire> wire,
                                                 const across::Nodes& nodes, collective::GroupOptions options,
                                                 across::BridgeOptions bridge_options) {
  auto node = Communicator::create(std::move(memory), options);
  if (!node.ok()) return node.status();
  std::unique_ptr<across::Bridge> bridge;
  if (node.value()->group().rank() == 0) {
    bridge =
        std::make_unique<across::Bridge>(node.value()->share_group(), std::move(wire), nodes, bridge_options);
  }
  std::unique_ptr<Cluster> cluster(new Cluster(std::move(node).value(), std::move(bridge)));
  if (cluster->bridge_ != nullptr) cluster->node_->engine()->add(*cluster);
  TNT_RETURN_IF_ERROR(cluster->node_->call([&](collective::Stage& stage) -> Status {
    auto made = across::Across::create(stage, nodes, cluster->bridge_.get());
    if (!made.ok()) return made.status();
    cluster->across_ = std::move(made).value();
    return {};
  }));
  TNT_RETURN_IF_ERROR(
      cluster->call([](across::Across& all) { return across::barrier(all, "the start of the job"); }));
  return cluster;
}

Cluster::~Cluster() { close(); }

void Cluster::close() {
  std::call_once(closed_, [this] {
    if (bridge_ != nullptr) {
      bridge_->leave();
      node_->engine()->remove(*this);
    }
    node_->close();
  });
}

}  // namespace tarantella::engine
