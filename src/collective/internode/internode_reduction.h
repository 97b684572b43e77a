#pragma once
// Sums buckets over several nodes: first in the memory of each node, as on one (see ../shared_memory_reduction.h), then
// between the leaders, by an allreduce of the nodes' sums, while other buckets are still being filled. It is two-shot,
// a reduce-scatter and then an allgather: each node sends shard j of M of the bucket to node j, which adds the M shards
// in the order of nodes and sends the result to all. A small bucket is one-shot: each node sends all of it to all
// others, and adds what it gets itself. The result is the same, so the bits depend on which rank is on which node
// alone. Values of 16 bits are rounded once on each node, and once more for the job.

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/bucket_reduction.h"
#include "collective/internode/internode_resources.h"
#include "collective/shared_memory_reduction.h"

namespace tarantella::collective::internode {

class InternodeReduction final : public BucketReduction {
 public:
  /// Buckets of up to so many bytes are summed one-shot; two nodes send no more bytes than two-shot. The same on all
  /// ranks.
  static constexpr size_t one_shot_bytes(size_t nodes) {
    return nodes == 2 ? transport::kEagerLimit : 16 * 1024;
  }

  /// The bytes of the buckets into which a tensor of more than `threshold` bytes is best split: where each node has one
  /// rank, nothing is summed while the rest is copied, and few messages are quicker. The same on all ranks.
  static size_t split_bytes(const InternodeResources& internode, size_t threshold);

  /// A leader begins no further exchange while so many bytes of a plan's buckets are being exchanged. They are more
  /// than a network holds, and few enough that what has come is still in a cache when it is added. Where each node has
  /// one rank, the limit is half of that, but two buckets may always be exchanged at once. There is no limit once no
  /// exchange has begun or ended for WaitPolicy::kQuiet: another node may have begun with other buckets.
  static constexpr size_t kMaxBytesInFlight = size_t{4} << 20;

  /// Collective over the ranks of the node. `intranode` sums `buckets` there; `name` says in errors what they are for.
  /// Messages have tags from `first_tag` on, one a bucket; rank 0 has allocated them. Unless `step_check`, the same on
  /// all ranks, is kOnNode, leaders compare the training steps of start(): each sends a message more. Errors: those of
  /// NodeGroup::map().
  static Result<std::unique_ptr<BucketReduction>> create(InternodeResources& internode,
                                                         std::unique_ptr<SharedMemoryReduction> intranode,
                                                         std::vector<Bucket> buckets, const std::string& name,
                                                         transport::Tag first_tag, StepCheck step_check);
  ~InternodeReduction() override;

  /// Where the node has one rank, values that fill a bucket to its last byte, padding included, and have an owner are
  /// sent from the caller's memory.
  void put(size_t bucket, Range range, const std::byte* values,
           const std::shared_ptr<const void>& owner) override;
  void start(size_t bucket, uint32_t training_step) override;
  Advanced advance(size_t bucket) override;
  void abort(size_t bucket) override;
  std::optional<Awaited> awaited(size_t bucket) const override;
  bool progress() override { return link_ != nullptr && link_->try_progress_if_one_pending(); }
  bool has_in_flight() const override { return link_ != nullptr && link_->has_pending_operations(); }
  const std::byte* result() const override { return intranode_->result(); }
  std::shared_ptr<void> memory() const override { return intranode_->memory(); }
  void begin_polling() override { intranode_->begin_polling(); }
  void end_polling() override { intranode_->end_polling(); }

 private:
  /// A leader's exchange of a bucket. Transfers by node; nullptr for the own one, and before they are started.
  struct BucketTransfers {
    /// Empty unless checks_training_steps_.
    std::vector<transport::TransferPtr> training_steps_out, training_steps_in;
    std::vector<transport::TransferPtr> shards_out, shards_in, results_out, results_in;
    /// All of these.
    std::array<std::vector<transport::TransferPtr>*, 6> all() {
      return {&training_steps_out, &training_steps_in, &shards_out, &shards_in, &results_out, &results_in};
    }
    std::shared_ptr<uint32_t[]> training_steps;  ///< in which nodes have started the bucket
    std::shared_ptr<std::byte[]> incoming;       ///< what the other nodes have of this node's shard
    bool reduced = false;
    Duration since{};  ///< with what follows in the time of LeaderLink::now()
    Duration next_warning{};
    Duration departed_since = Duration::max();  ///< the first check that found that an awaited node has left
  };
  struct State {
    std::atomic<uint32_t> generation{1};
    uint32_t training_step = 0;  ///< of start()
    /// The values of the whole bucket in the caller's memory, if put() has had them there; see put().
    const std::byte* zero_copy_input = nullptr;
    std::shared_ptr<const void> owner;  ///< of `zero_copy_input`
    /// From start() until kDone: `zero_copy_input`, which has the node's sums and is sent from. nullptr if the sums of
    /// this generation are in the node's memory. So it also tells whether the generation is zero-copy.
    std::atomic<const std::byte*> active_send_buffer{nullptr};
    std::atomic<bool> exchanging{false};         ///< the node's sums are complete, those of the job are not
    std::unique_ptr<BucketTransfers> transfers;  ///< on a leader that exchanges
  };

  InternodeReduction(InternodeResources& internode, std::unique_ptr<SharedMemoryReduction> intranode,
                     std::vector<Bucket> buckets, std::string name, transport::Region region,
                     transport::Tag first_tag, StepCheck step_check);

  /// Whether this leader may begin another exchange.
  bool may_begin_exchange() const;
  bool is_one_shot(size_t bucket) const { return buckets_[bucket].bytes <= one_shot_bytes(nodes_.count()); }
  /// What `node` reduces of a bucket, as a range of the area.
  Range shard_of(size_t bucket, size_t node) const;
  std::span<std::byte> sums(Range range) const;
  /// The sums of this node for a range of the bucket.
  std::span<const std::byte> node_sums(size_t bucket, Range range) const;
  /// How many bytes of the other nodes come in.
  size_t incoming_bytes(size_t bucket) const {
    return shard_of(bucket, own_node_).bytes() * (nodes_.count() - 1);
  }
  /// Where what another node has of this node's shard comes in.
  std::span<std::byte> incoming(size_t bucket, size_t node) const;
  /// The word by which a leader tells its node's ranks that a bucket's exchange is complete: it holds the generation.
  transport::Word& exchanged(size_t bucket) const;

  transport::Tag tag_of(size_t bucket) const { return first_tag_ + static_cast<transport::Tag>(bucket); }
  void begin_exchange(size_t bucket);
  void end_transfers(size_t bucket);
  /// Fails the group if another node has started the bucket in another training step than this one. False: it has
  /// failed.
  bool check_training_steps(const BucketTransfers& transfers);
  /// Does what is due. True if the exchange is complete.
  bool advance_exchange(size_t bucket);
  void reduce(size_t bucket);
  /// Fails the group if a node that is awaited cannot come any more, and warns if it does not come for long.
  void check_peers(size_t bucket);
  std::shared_ptr<std::byte[]> take_buffer(size_t bytes);
  /// See WaitEdges::awaits_other_node.
  std::atomic<bool>& awaits_other_node() const;

  const std::shared_ptr<NodeGroup> group_;
  const NodeMap nodes_;
  const size_t own_node_;                     ///< the index of this node
  const std::shared_ptr<LeaderLink> link_;    ///< nullptr but on the leader
  const std::shared_ptr<TagAllocator> tags_;  ///< nullptr but on the leader
  const std::unique_ptr<SharedMemoryReduction> intranode_;
  const std::vector<Bucket> buckets_;
  const std::string name_;
  const transport::Region region_;
  const transport::Tag first_tag_;
  const bool made_by_creator_thread_;  ///< as Plan::made_by_creator_thread()
  const bool one_rank_per_node_;
  const bool checks_training_steps_;  ///< leaders compare the training steps of start()
  const bool publishes_wait_edge_;    ///< in the next status message to the other nodes
  std::vector<State> states_;
  std::vector<std::pair<size_t, std::shared_ptr<std::byte[]>>> free_buffers_;  ///< with their sizes
  size_t exchanges_ = 0;                                                       ///< in flight
  size_t bytes_in_flight_ = 0;                                                 ///< of these
  bool deferred_ = false;  ///< may_begin_exchange() has refused a bucket since an exchange last ended
  Duration changed_at_{};  ///< when one of these began or ended, in the time of LeaderLink::now()
};

}  // namespace tarantella::collective::internode
