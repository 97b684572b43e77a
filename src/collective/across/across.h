#pragma once
// The ranks of a job on several nodes, as the collectives see them. Within its node a rank uses the node's stage; its
// leader meets the other leaders in between. For jobs on one node none of this exists.

#include <algorithm>
#include <memory>

#include "collective/across/exchange.h"
#include "collective/across/tags.h"
#include "collective/cuts.h"
#include "collective/stage.h"

namespace tarantella::collective::across {

/// One rank's view. For one thread at a time.
class Across {
 public:
  /// Collective over the ranks of the node, blocks. `bridge` is nullptr but on the leader; `node` must outlive this.
  /// Errors: those of Group::map().
  static Result<std::unique_ptr<Across>> create(Stage& node, const Nodes& nodes,
                                                std::shared_ptr<Bridge> bridge);

  Stage& node() { return node_; }
  const Nodes& nodes() const { return nodes_; }
  /// This rank's number in the job, and the number of its node.
  int rank() const { return rank_; }
  size_t own_node() const { return nodes_.node_of(rank_); }
  /// The number of ranks in the job.
  size_t size() const { return nodes_.ranks(); }
  /// The most bytes that a rank shows its node at once: what the smallest node's stage holds.
  size_t chunk() const { return chunk_bytes(nodes_.smallest()); }
  /// The most bytes that nodes exchange at once: a multiple of chunk(), since each exchange costs the time of several
  /// messages.
  size_t round() const { return round_bytes(nodes_); }
  /// nullptr but on the leader.
  Exchange* exchange() { return exchange_.get(); }
  const std::shared_ptr<Bridge>& bridge() const { return bridge_; }
  /// Rank 0 gives out the tags of plans.
  const std::shared_ptr<Tags>& tags() { return tags_; }

  /// Memory that the node's ranks share: for the node's part of a reduction, in elements of dtype_of_parts(), and for
  /// the result. A round has at most round() bytes of result. Both are free again after the next but one
  /// node().agree().
  std::byte* part() { return region_.bytes.data(); }
  std::byte* result() { return region_.bytes.data() + kWidest * round(); }
  /// The most bytes for each rank of the job in a round in which result() has a piece for each: a multiple of all
  /// element sizes; 0 if there are too many ranks.
  size_t piece() const { return chunk() / nodes_.ranks() / 64 * 64; }
  /// Keeps part(), result() and the node's stage mapped.
  std::shared_ptr<void> memory() const { return memory_; }

 private:
  static constexpr size_t kWidest = 2;  // bytes of a part for one of the result
  static constexpr size_t kRound = size_t{1} << 20;

  static size_t round_bytes(const Nodes& nodes) {
    const size_t chunk = chunk_bytes(nodes.smallest());
    return std::max(kRound / chunk, size_t{1}) * chunk;
  }

  Across(Stage& node, Nodes nodes, std::shared_ptr<Bridge> bridge, transport::Region region);

  Stage& node_;
  const Nodes nodes_;
  const int rank_;
  const std::shared_ptr<Bridge> bridge_;
  const std::unique_ptr<Exchange> exchange_;
  const std::shared_ptr<Tags> tags_ = std::make_shared<Tags>();
  const transport::Region region_;
  const std::shared_ptr<void> memory_;
};

}  // namespace tarantella::collective::across
