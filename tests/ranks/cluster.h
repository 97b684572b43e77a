#pragma once
// A job on several nodes whose ranks are threads of this process: fake nodes, joined by a bad network.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/internode/cluster_communicator.h"
#include "engine/context.h"
#include "support/fake_memory.h"
#include "support/fake_network.h"

namespace tarantella {

class FakeCluster {
 public:
  /// node_of[rank] is the node of a rank, by any number. The network behaves as `seed` says; see FakeNetwork. With
  /// `dedicated_cores` ranks take it that nothing else runs on their cores.
  explicit FakeCluster(const std::vector<int>& node_of, uint64_t seed = 1, uint32_t latest = 20,
                       bool dedicated_cores = false)
      : nodes_(node_of), network_(static_cast<int>(nodes_.count()), seed, latest) {
    for (size_t node = 0; node < nodes_.count(); ++node) {
      memories_.push_back(std::make_unique<transport::FakeNode>(nodes_.ranks_of(node), size()));
      memories_.back()->set_dedicated_cores(dedicated_cores);
    }
    options_.failure_delay =
        2s;  // the last messages of a node that has ended arrive within it, under sanitizers too
    options_.stuck_timeout = 60s;
    options_.one_level = 2;  // three ranks of a node have several flag groups
  }

  int size() const { return static_cast<int>(nodes_.ranks()); }
  const collective::internode::NodeMap& nodes() const { return nodes_; }
  /// Its ranks are the nodes.
  transport::FakeNetwork& network() { return network_; }
  transport::FakeNode& memory(size_t node) { return *memories_[node]; }
  collective::GroupOptions& options() { return options_; }
  collective::internode::LeaderLinkOptions& link_options() { return link_options_; }

  /// Runs body(context) on one thread a rank, once all have joined: a failure ends the join of a rank that is still in
  /// its last barrier. Once per object.
  void run(const std::function<void(engine::Context&)>& body) {
    std::latch all_joined(size());
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      ranks.emplace_back([&, rank] {
        auto joined = join(rank);
        all_joined.arrive_and_wait();
        ASSERT_TRUE(joined.ok()) << joined.status().message();
        body(*joined.value());
      });
    }
    for (auto& rank : ranks) rank.join();
  }

  Result<std::unique_ptr<engine::Context>> join(int rank) {
    const size_t node = nodes_.node_of(rank);
    const auto& ranks = nodes_.ranks_of(node);
    const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    auto made = collective::internode::ClusterCommunicator::create(
        memories_[node]->memory(static_cast<int>(place)),
        place == 0 ? network_.endpoint(static_cast<int>(node)) : nullptr, nodes_, options_, link_options_);
    if (!made.ok()) return made.status();
    return engine::Context::create(std::move(made).value());
  }

 private:
  const collective::internode::NodeMap nodes_;
  std::vector<std::unique_ptr<transport::FakeNode>> memories_;
  transport::FakeNetwork network_;
  collective::GroupOptions options_;
  collective::internode::LeaderLinkOptions link_options_;
};

/// What joins the nodes of a FakeCluster's communicator.
inline collective::internode::InternodeResources& internode_of(collective::Communicator& comm) {
  return dynamic_cast<collective::internode::ClusterCommunicator&>(comm).internode();
}

/// The node of each rank, by a layout's name.
inline const std::map<std::string, std::vector<int>> kLayouts = {
#if !defined(__SANITIZE_THREAD__)  // the others have all that these do, and it takes minutes
    {"1_1", {0, 1}},       {"1_1_1", {0, 1, 2}},          {"one_node", {0, 0, 0}},
#endif
    {"2_2", {0, 0, 1, 1}}, {"1_3_2", {0, 1, 1, 1, 2, 2}}, {"in_turn", {5, 3, 5, 3, 9}},
};

inline std::vector<std::string> names_of_layouts() {
  std::vector<std::string> names;
  for (const auto& [name, nodes] : kLayouts) names.push_back(name);
  return names;
}

/// As many nodes as counts are shown for. ThreadSanitizer makes a thread some ten times slower: 256 ranks took longer
/// than a test may.
#if defined(__SANITIZE_THREAD__)
constexpr int kManyNodes = 16;
#else
constexpr int kManyNodes = 64;
#endif

/// The node of each rank, if node k has sizes[k] consecutive ranks.
inline std::vector<int> nodes_of_sizes(const std::vector<int>& sizes) {
  std::vector<int> node_of;
  for (size_t node = 0; node < sizes.size(); ++node)
    node_of.insert(node_of.end(), static_cast<size_t>(sizes[node]), static_cast<int>(node));
  return node_of;
}

}  // namespace tarantella
