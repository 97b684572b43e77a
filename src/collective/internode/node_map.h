#pragma once
// Which rank of a job is on which node. Pure.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::collective::internode {

/// Nodes are numbered by the lowest of their ranks, so rank 0 is on node 0. The same on all ranks.
class NodeMap {
 public:
  /// node_of[rank] tells nodes apart, by any number.
  explicit NodeMap(const std::vector<int>& node_of) {
    std::vector<int> names;
    for (size_t rank = 0; rank < node_of.size(); ++rank) {
      const auto found = std::find(names.begin(), names.end(), node_of[rank]);
      const auto node = static_cast<size_t>(found - names.begin());
      if (found == names.end()) {
        names.push_back(node_of[rank]);
        ranks_.emplace_back();
      }
      ranks_[node].push_back(static_cast<int>(rank));
      nodes_.push_back(node);
    }
  }

  /// The number of nodes, and of ranks.
  size_t count() const { return ranks_.size(); }
  size_t ranks() const { return nodes_.size(); }
  size_t node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  /// The ranks of a node, in ascending order: the k-th one is rank k of the node's memory.
  const std::vector<int>& ranks_of(size_t node) const { return ranks_[node]; }
  /// The number of ranks of the node that has the fewest.
  size_t smallest() const {
    const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
    return std::min_element(ranks_.begin(), ranks_.end(), fewer)->size();
  }
  /// The rank that speaks for its node.
  int leader(size_t node) const { return ranks_[node].front(); }
  /// The ranks of a node in messages: "rank 3", "ranks 4 to 7" or "ranks 1, 3".
  std::string describe(size_t node) const {
    const std::vector<int>& all = ranks_[node];
    if (all.size() == 1) return text("rank ", all.front());
    if (all.back() - all.front() + 1 == static_cast<int>(all.size()))
      return text("ranks ", all.front(), " to ", all.back());
    std::string list = "ranks ";
    for (const int rank : all) list += text(rank == all.front() ? "" : ", ", rank);
    return list;
  }

 private:
  std::vector<size_t> nodes_;
  std::vector<std::vector<int>> ranks_;
};

}  // namespace tarantella::collective::internode
