#pragma once
// Sums buckets over several nodes: first in the memory of each node, as on one (see ../node_reduction.h), then the
// leaders exchange the nodes' sums, while other buckets are still being filled. Part j of M of a bucket goes to node j,
// which adds the M parts in the order of nodes and gives the result to all. A small bucket takes one hop: each node
// gets all of it and adds it itself. The result is the same, so the bits depend on which rank is on which node alone.
// Values of 16 bits are rounded once on each node, and once more for the job.

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/across/across.h"
#include "collective/bucket_reduction.h"
#include "collective/node_reduction.h"

namespace tarantella::collective::across {

class NodesReduction final : public BucketReduction {
 public:
  /// Buckets of up to so many bytes are given to all nodes at once; two nodes send no more bytes this way than in
  /// parts. The same on all ranks.
  static constexpr size_t small_bytes(size_t nodes) { return nodes == 2 ? transport::kUnasked : 16 * 1024; }

  /// The parts, in bytes, in which a tensor of more than `threshold` bytes is best split: where each node has one rank,
  /// nothing is summed while the rest is copied, and few messages are quicker. The same on all ranks.
  static size_t piece(const Across& across, size_t threshold);

  /// A leader exchanges so many bytes of a plan's buckets at once: more than a network holds, and what has come is
  /// still in a cache when it is added. Where each node has one rank it is half of that, and two buckets in any case.
  /// More if none of these gets on for kPatience: another node may have begun with others.
  static constexpr size_t kAtOnce = size_t{4} << 20;
  static constexpr Duration kPatience = 1ms;

  /// Collective over the job. `node` sums `buckets` on this rank's node; `name` says in errors what they are for.
  /// Unless `numbers`, the same on all ranks, is kNone, leaders compare those of start(): each sends a message more.
  /// Errors: those of Group::map(); kInvalidArgument, on all ranks, for too many buckets.
  static Result<std::unique_ptr<BucketReduction>> create(Across& across, std::unique_ptr<NodeReduction> node,
                                                         std::vector<Bucket> buckets, const std::string& name,
                                                         Numbers numbers);
  ~NodesReduction() override;

  /// Where the node has one rank, values that fill a bucket to its last byte, padding included, and are kept for good
  /// are sent from the caller's memory.
  void put(size_t bucket, Range part, const std::byte* values, Kept kept) override;
  void start(size_t bucket, uint32_t number) override;
  Advanced advance(size_t bucket) override;
  std::optional<Awaited> awaited(size_t bucket) const override;
  bool drive() override { return bridge_ != nullptr && bridge_->drive_alone(); }
  bool moves() const override { return bridge_ != nullptr && bridge_->is_awaited(); }
  const std::byte* result() const override { return node_->result(); }
  std::shared_ptr<void> memory() const override { return node_->memory(); }
  void begin_looking() override { node_->begin_looking(); }
  void end_looking() override { node_->end_looking(); }

 private:
  /// A leader's exchange of a bucket. Requests by node; nullptr for the own one, and before they are started.
  struct Traffic {
    std::vector<transport::Request> numbers_out, numbers_in;  ///< empty without numbers
    std::vector<transport::Request> parts_out, parts_in, results_out, results_in;
    std::shared_ptr<uint32_t[]> numbers;    ///< with which nodes have started the bucket
    std::shared_ptr<std::byte[]> incoming;  ///< the other nodes' parts
    bool reduced = false;
    Duration since{};  ///< with what follows in the time of Bridge::now()
    Duration next_warning{};
    Duration left_since = Duration::max();  ///< the first look that found that an awaited node has left
  };
  struct State {
    std::atomic<uint32_t> step{1};
    uint32_t number = 0;               ///< of start()
    const std::byte* whole = nullptr;  ///< what put() has had for the whole bucket, in the caller's memory
    /// `whole` of a bucket that has started: they are the node's sums. nullptr if these are in the node's memory.
    std::atomic<const std::byte*> lent{nullptr};
    std::atomic<bool> exchanging{false};  ///< the node's sums are complete, those of the job are not
    std::unique_ptr<Traffic> traffic;     ///< on a leader that exchanges
  };

  NodesReduction(Across& across, std::unique_ptr<NodeReduction> node, std::vector<Bucket> buckets,
                 std::string name, transport::Region region, transport::Tag first_tag, Numbers numbers);

  /// Whether this leader may begin another exchange.
  bool has_room() const;
  bool is_small(size_t bucket) const { return buckets_[bucket].bytes <= small_bytes(nodes_.count()); }
  /// What `node` reduces of a bucket, as a range of the area.
  Range part_of(size_t bucket, size_t node) const;
  std::span<std::byte> sums(Range range) const;
  /// The values of this node for a range of the bucket.
  std::span<const std::byte> own(size_t bucket, Range range) const;
  /// How many bytes of the other nodes come in.
  size_t room_bytes(size_t bucket) const { return part_of(bucket, own_).bytes() * (nodes_.count() - 1); }
  /// Where the part of another node comes in, of the bucket's part that is this node's.
  std::span<std::byte> incoming(size_t bucket, size_t node) const;
  /// By how much leaders tell the ranks of their nodes that a bucket's exchange is complete: the step.
  transport::Word& exchanged(size_t bucket) const;

  void begin_exchange(size_t bucket);
  /// Fails the group if another node has started the bucket with another number than this one. False: it has failed.
  bool compare_numbers(const Traffic& traffic);
  /// Does what is due. True if the exchange is complete.
  bool exchange(size_t bucket);
  void reduce(size_t bucket);
  /// Fails the group if a node that is awaited cannot come any more, and warns if it does not come for long.
  void look_after(size_t bucket);
  std::shared_ptr<std::byte[]> room(size_t bytes);
  /// See Waits.
  std::atomic<bool>& far() const;

  const std::shared_ptr<Group> group_;
  const Nodes nodes_;
  const size_t own_;                      ///< the number of this node
  const std::shared_ptr<Bridge> bridge_;  ///< nullptr but on the leader
  const std::shared_ptr<Tags> tags_;      ///< on rank 0
  const std::unique_ptr<NodeReduction> node_;
  const std::vector<Bucket> buckets_;
  const std::string name_;
  const transport::Region region_;
  const transport::Tag first_tag_;
  const bool of_caller_;   ///< as Plan::of_caller()
  const bool single_;      ///< each node has one rank
  const bool numbered_;    ///< leaders compare the numbers of start()
  const bool shows_wait_;  ///< to the bridge, which tells other nodes when asked
  std::vector<State> states_;
  std::vector<std::pair<size_t, std::shared_ptr<std::byte[]>>> rooms_;  ///< free ones, with their sizes
  size_t exchanges_ = 0;                                                ///< under way
  size_t under_way_ = 0;                                                ///< bytes of these
  bool refused_ = false;   ///< a bucket has found no room since one was complete
  Duration changed_at_{};  ///< when one of these began or ended, in the time of Bridge::now()
};

}  // namespace tarantella::collective::across
