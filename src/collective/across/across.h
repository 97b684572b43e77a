#pragma once
// The ranks of a job on several nodes, as the collectives see them. Within its node a rank uses the node's stage; its
// leader meets the other leaders in between. For jobs on one node none of this exists.

#include <memory>

#include "collective/across/exchange.h"
#include "collective/stage.h"

namespace tarantella::collective::across {

/// One rank's view. For one thread at a time.
class Across {
 public:
  /// Collective over the ranks of the node, blocks. `bridge` is nullptr but on the leader, where it must outlive this;
  /// so must `node`. Errors: those of Group::map().
  static Result<std::unique_ptr<Across>> create(Stage& node, const Nodes& nodes, Bridge* bridge);

  Stage& node() { return node_; }
  const Nodes& nodes() const { return nodes_; }
  /// This rank's number in the job, and the number of its node.
  int rank() const { return rank_; }
  size_t own_node() const { return nodes_.node_of(rank_); }
  /// nullptr but on the leader.
  Exchange* exchange() { return exchange_.get(); }

  /// Memory that the node's ranks share: for the node's part of a reduction, in elements of dtype_of_parts(), and for
  /// the result. A round has at most node().chunk() bytes of result. Both are free again after the next but one
  /// node().agree().
  std::byte* part() { return region_.bytes.data(); }
  std::byte* result() { return region_.bytes.data() + kWidest * node_.chunk(); }
  /// The most bytes for each rank of the job in a round in which result() has a piece for each: a multiple of all
  /// element sizes; 0 if there are too many ranks.
  size_t piece() const { return node_.chunk() / nodes_.ranks() / 64 * 64; }
  /// Keeps part(), result() and the node's stage mapped.
  std::shared_ptr<void> memory() const { return memory_; }

 private:
  static constexpr size_t kWidest = 2;  // bytes of a part for one of the result

  Across(Stage& node, Nodes nodes, std::unique_ptr<Exchange> exchange, transport::Region region);

  Stage& node_;
  const Nodes nodes_;
  const int rank_;
  const std::unique_ptr<Exchange> exchange_;
  const transport::Region region_;
  const std::shared_ptr<void> memory_;
};

}  // namespace tarantella::collective::across
