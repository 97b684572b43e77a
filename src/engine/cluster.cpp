#include "engine/cluster.h"

#include <algorithm>
#include <utility>

namespace tarantella::engine {

namespace across = collective::across;

Result<std::unique_ptr<Cluster>> Cluster::create(std::unique_ptr<transport::Memory> memory,
                                                 std::unique_ptr<transport::Wire> wire,
                                                 const across::Nodes& nodes, collective::GroupOptions options,
                                                 across::BridgeOptions bridge_options) {
  auto node = Communicator::create(std::move(memory), options);
  if (!node.ok()) return node.status();
  std::shared_ptr<across::Posts> posts;
  TNT_RETURN_IF_ERROR(node.value()->call([&](collective::Stage& stage) -> Status {
    auto made = across::Posts::create(stage.group(), nodes);
    if (!made.ok()) return made.status();
    posts = std::move(made).value();
    return {};
  }));
  std::shared_ptr<across::Bridge> bridge;
  if (node.value()->group().rank() == 0) {
    bridge = std::make_shared<across::Bridge>(node.value()->share_group(), std::move(wire), nodes, posts,
                                              bridge_options);
  }
  std::unique_ptr<Cluster> cluster(new Cluster(std::move(node).value(), std::move(posts), std::move(bridge)));
  if (cluster->bridge_ != nullptr) cluster->node_->engine()->add(*cluster);
  TNT_RETURN_IF_ERROR(cluster->node_->call([&](collective::Stage& stage) -> Status {
    auto made = across::Across::create(stage, nodes, cluster->bridge_);
    if (!made.ok()) return made.status();
    cluster->across_ = std::move(made).value();
    return {};
  }));
  TNT_RETURN_IF_ERROR(
      cluster->call([](across::Across& all) { return across::barrier(all, "the start of the job"); }));
  return cluster;
}

Cluster::~Cluster() { close(); }

void Cluster::post(const std::string& name, uint32_t value) {
  group().post(name, value);
  if (bridge_ != nullptr) bridge_->post(across::Posts::make(name, value, calls_));
}

template <typename Here, typename There>
auto Cluster::of_poster(int from, Here here, There there) -> decltype(here(from)) {
  const across::Nodes& all = across_->nodes();
  const size_t node = all.node_of(from);
  if (node == across_->own_node()) {
    const std::vector<int>& near = all.ranks_of(node);
    return here(static_cast<int>(std::find(near.begin(), near.end(), from) - near.begin()));
  }
  if (from == all.leader(node)) return there();
  return Status(Code::kInvalidArgument, text("a rank cannot wait for a post of rank ", from,
                                             ", which is on another machine and not its first rank"));
}

Result<uint32_t> Cluster::await_post(int from, const std::string& name) {
  return of_poster(
      from, [&](int near) { return group().await_post(near, name); },
      [&] { return posts_->await(from, name, calls_); });
}

Result<std::optional<uint32_t>> Cluster::find_post(int from, const std::string& name) {
  return of_poster(
      from, [&](int near) { return group().find_post(near, name); },
      [&] { return posts_->find(from, name); });
}

Result<std::unique_ptr<Communicator>> Cluster::create_group(const std::vector<int>& ranks) {
  const across::Nodes& nodes = across_->nodes();
  TNT_RETURN_IF_ERROR(Communicator::check_group(ranks, nodes.ranks()));
  std::vector<int> places;  // on their node
  for (const int rank : ranks) {
    if (nodes.node_of(rank) != nodes.node_of(ranks[0]))
      return Status(Code::kInvalidArgument, text("a group of rank ", ranks[0], " and rank ", rank,
                                                 ", which run on different machines: this version has groups "
                                                 "of one machine's ranks only"));
    const std::vector<int>& near = nodes.ranks_of(nodes.node_of(rank));
    places.push_back(static_cast<int>(std::find(near.begin(), near.end(), rank) - near.begin()));
  }
  const std::vector<uint64_t> numbers(ranks.begin(), ranks.end());
  TNT_RETURN_IF_ERROR(call([&](across::Across& all) {
    return across::agree(
        all, {.operation = collective::Operation::kGroup, .count = numbers.size(), .counts = numbers});
  }));
  if (nodes.node_of(ranks[0]) != across_->own_node()) return std::unique_ptr<Communicator>();
  return node_->create_group(places);
}

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
