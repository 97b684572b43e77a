#pragma once
// The ranks of a job, or some of them, and what they do together. The one seam between the engine and the ways to
// communicate: NodeCommunicator has the ranks of one node, internode/ClusterCommunicator those of several. Only who
// makes one knows which it is.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/reduction.h"
#include "base/status.h"
#include "collective/bucket_reduction.h"
#include "collective/call_signature.h"
#include "collective/node_group.h"

namespace tarantella::collective {

/// The blocking calls are collective: every rank makes the same ones in the same order, one thread at a time. They
/// compare their arguments between ranks: kMismatch on all ranks, which fails the communicator. Other errors: its
/// failure; kInvalidArgument, with no effect, for arguments that no rank can have. `name` (may be "") is compared and
/// appears in errors. Elements are reduced in rank order within a node, then in the order of nodes: the bits depend on
/// which rank is on which node, and on nothing else.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The number in the whole job of a rank of this communicator.
  virtual int job_rank(int rank) const = 0;
  /// The ranks of this rank's node. Their failure is that of the communicator.
  NodeGroup& group() const { return *group_; }
  const std::shared_ptr<NodeGroup>& share_group() const { return group_; }

  /// Reduces `count` elements. `output` may be `input`. `owner` keeps both for as long as another node may read or
  /// write them, which after an error is longer than this call; without one, nodes exchange copies.
  virtual Status allreduce(const void* input, void* output, size_t count, DType dtype, Reduction reduction,
                           std::string_view name, const std::shared_ptr<const void>& owner = nullptr) = 0;
  /// `input` has `count` elements for each rank, in rank order. Reduces those for this rank into `output`, of `count`
  /// elements. The buffers must not overlap.
  virtual Status reduce_scatter(const void* input, void* output, size_t count, DType dtype,
                                Reduction reduction, std::string_view name) = 0;
  /// Copies `count` elements of `data` on rank `root` to `data` on all other ranks.
  virtual Status broadcast(void* data, size_t count, DType dtype, int root, std::string_view name) = 0;
  /// Copies counts[rank] elements of each rank's `input` to `output`, in rank order. `counts` is the same on all ranks.
  /// The buffers must not overlap.
  virtual Status allgather(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                           std::string_view name) = 0;
  /// `input` has send_counts[rank] elements for each rank, in rank order; `output` gets receive_counts[rank] elements
  /// from each. The buffers must not overlap. kMismatch if a rank expects another number of elements than it is sent.
  virtual Status alltoall(const void* input, std::span<const uint64_t> send_counts, void* output,
                          std::span<const uint64_t> receive_counts, DType dtype, std::string_view name) = 0;
  /// Returns when all ranks have made `call`. What a rank wrote to memory of its node before is visible there.
  virtual Status compare_call(const CallSignature& call) = 0;
  Status barrier(std::string_view name) {
    return compare_call({.operation = Operation::kBarrier, .name = name});
  }

  /// Collective, blocks. Makes a communicator of `ranks`, numbered in that order; nullptr on a rank that is not among
  /// them. The two are independent. Errors: kInvalidArgument for ranks that cannot be one; kSystem if a rank cannot map
  /// its memory, which fails this one too.
  virtual Result<std::unique_ptr<Communicator>> split(const std::vector<int>& ranks) = 0;

  /// In bytes of a node's memory.
  struct MemoryNeed {
    uint64_t needed;
    uint64_t available;
  };
  /// What make_reduction() needs of this rank's node for buckets of so many bytes together, and what is available
  /// there. Not collective.
  virtual MemoryNeed memory_for(size_t bytes) const = 0;
  /// The bytes in which a tensor larger than `threshold` is best cut into buckets. The same on all ranks.
  virtual size_t split_bytes(size_t threshold) const { return threshold; }
  /// Collective, blocks. `buckets` are consecutive ranges of an area, the same on all ranks, as `step_check`. `name`
  /// says in errors what they are for. Errors: kOutOfMemory, on all ranks; kInvalidArgument, on all ranks, for too
  /// many.
  virtual Result<std::unique_ptr<BucketReduction>> make_reduction(std::vector<Bucket> buckets,
                                                                  const std::string& name,
                                                                  StepCheck step_check) = 0;

  /// Announces to all ranks that this one has done `name`, with the result `value`. Not collective, does not block.
  virtual void notify(const std::string& name, uint32_t value) = 0;
  /// See NodeGroup::wait_notification(). `from` is a rank of this node, or the first rank of another: else
  /// kInvalidArgument.
  virtual Result<uint32_t> wait_notification(int from, const std::string& name) = 0;
  /// See NodeGroup::find_notification(), of the same ranks.
  virtual Result<std::optional<uint32_t>> find_notification(int from, const std::string& name) = 0;

  /// The user makes a call. For wait_notification(), the collectives of which it consists count as one.
  virtual void begin_call() {}
  /// Moves bytes between nodes. If it returns a time, the progress thread calls it again within that time, and within
  /// NodeGroup::kCheckInterval. kForever: no bytes are awaited. Does not wait for other ranks. In the core, `progress`
  /// means to move bytes between nodes, and `advance` to do what is due in a bucket, a plan or a context.
  virtual std::optional<Duration> progress() { return std::nullopt; }
  /// Something ends this job, perhaps since a rank has died: from here on a silent node is lost sooner. Returns the
  /// time within which this rank then knows of a lost rank. Any thread.
  virtual Duration shorten_loss_timeout() { return 1s; }
  /// Ends the communication of this rank only: its waits, on any thread, end with kPeerLost within
  /// NodeGroup::kCheckInterval. Between nodes it blocks until the progress thread has told the others, for a second at
  /// most. Idempotent; not on the progress thread.
  virtual void close() { group_->close(); }

 protected:
  explicit Communicator(std::shared_ptr<NodeGroup> group) : group_(std::move(group)) {}

 private:
  const std::shared_ptr<NodeGroup> group_;
};

/// kInvalidArgument if `ranks` cannot be a part of `size` ranks.
Status check_split(const std::vector<int>& ranks, int size);

}  // namespace tarantella::collective
