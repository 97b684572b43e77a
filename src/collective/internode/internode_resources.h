#pragma once
// What the collectives of a job on several nodes use: the staging buffers of this rank's node, shared memory for a
// partial and a result, and on the leader the exchange with other leaders and the tags of plans. A job on one node has
// no InternodeResources.

#include <algorithm>
#include <memory>

#include "collective/chunking.h"
#include "collective/internode/leader_exchange.h"
#include "collective/internode/tag_allocator.h"
#include "collective/staging_buffers.h"

namespace tarantella::collective::internode {

/// Those of one rank. For one thread at a time.
class InternodeResources {
 public:
  /// Collective over the ranks of the node, blocks. `link` is nullptr but on the leader; `staging` must outlive this.
  /// Errors: those of NodeGroup::map().
  static Result<std::unique_ptr<InternodeResources>> create(StagingBuffers& staging, const NodeMap& nodes,
                                                            std::shared_ptr<LeaderLink> link);

  StagingBuffers& staging() { return staging_; }
  const NodeMap& nodes() const { return nodes_; }
  /// This rank's number in the job, and the number of its node.
  int rank() const { return rank_; }
  size_t own_node() const { return nodes_.node_of(rank_); }
  /// The number of ranks in the job.
  size_t size() const { return nodes_.ranks(); }
  /// The most bytes that a rank shows its node at once: what the smallest node's staging buffers hold.
  size_t chunk() const { return chunk_bytes(nodes_.smallest()); }
  /// The most bytes that nodes exchange at once: a multiple of chunk(), since each exchange costs the time of several
  /// messages.
  size_t exchange_chunk() const { return exchange_chunk_bytes(nodes_); }
  /// nullptr but on the leader.
  LeaderExchange* leader_exchange() { return leader_exchange_.get(); }
  const std::shared_ptr<LeaderLink>& link() const { return link_; }
  /// Rank 0 allocates the tags of plans, and leaders note which are retired.
  const std::shared_ptr<TagAllocator>& tags() { return tags_; }

  /// Memory that the node's ranks share: for the node's partial result, in elements of partial_dtype(), and for
  /// the result, which has at most exchange_chunk() bytes. The ranks may overwrite both after two more calls of
  /// staging().exchange(): the first shows that they are complete, the second that all ranks have read them.
  std::byte* partial() { return region_.bytes.data(); }
  std::byte* result() { return region_.bytes.data() + kMaxWidthFactor * exchange_chunk(); }
  /// The most bytes for each rank of the job where result() has a range for each: a multiple of all element sizes; 0 if
  /// there are too many ranks.
  size_t bytes_per_rank() const { return chunk() / nodes_.ranks() / 64 * 64; }
  /// Keeps partial(), result() and the node's staging buffers mapped.
  std::shared_ptr<void> memory() const { return memory_; }

 private:
  /// The largest ratio of the size of partial_dtype() to that of its dtype.
  static constexpr size_t kMaxWidthFactor = 2;
  static constexpr size_t kExchangeChunk = size_t{1} << 20;

  static size_t exchange_chunk_bytes(const NodeMap& nodes) {
    const size_t chunk = chunk_bytes(nodes.smallest());
    return std::max(kExchangeChunk / chunk, size_t{1}) * chunk;
  }

  InternodeResources(StagingBuffers& staging, NodeMap nodes, std::shared_ptr<LeaderLink> link,
                     transport::Region region);

  StagingBuffers& staging_;
  const NodeMap nodes_;
  const int rank_;
  const std::shared_ptr<LeaderLink> link_;
  const std::unique_ptr<LeaderExchange> leader_exchange_;
  const std::shared_ptr<TagAllocator> tags_ = std::make_shared<TagAllocator>();
  const transport::Region region_;
  const std::shared_ptr<void> memory_;
};

}  // namespace tarantella::collective::internode
