#pragma once
// The ranks of several nodes: a communicator of this rank's node, and what joins the nodes. Each collective has a file
// of its own.

#include "collective/internode/internode_resources.h"
#include "collective/node_communicator.h"

namespace tarantella::collective::internode {

class ClusterCommunicator final : public Communicator {
 public:
  /// Collective over the ranks of the node, blocks; the nodes exchange nothing before the first call. `memory` is that
  /// of this rank's node, with the node's ranks in ascending order; `endpoint` joins the nodes, and is used by the
  /// node's first rank, nullptr on others. Errors: those of NodeCommunicator::create().
  static Result<std::unique_ptr<ClusterCommunicator>> create(std::unique_ptr<transport::NodeMemory> memory,
                                                             std::unique_ptr<transport::Endpoint> endpoint,
                                                             const NodeMap& nodes, GroupOptions options,
                                                             LeaderLinkOptions link_options);

  const NodeMap& nodes() const { return internode_->nodes(); }
  InternodeResources& internode() { return *internode_; }

  int rank() const override { return internode_->rank(); }
  int size() const override { return static_cast<int>(nodes().ranks()); }
  int job_rank(int rank) const override { return rank; }
  Status allreduce(const void* input, void* output, size_t count, DType dtype, Reduction reduction,
                   std::string_view name, const std::shared_ptr<const void>& owner = nullptr) override;
  /// kInvalidArgument for more ranks than a chunk has cache lines; so allgather() and alltoall().
  Status reduce_scatter(const void* input, void* output, size_t count, DType dtype, Reduction reduction,
                        std::string_view name) override;
  Status broadcast(void* data, size_t count, DType dtype, int root, std::string_view name) override;
  Status allgather(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                   std::string_view name) override;
  Status alltoall(const void* input, std::span<const uint64_t> send_counts, void* output,
                  std::span<const uint64_t> receive_counts, DType dtype, std::string_view name) override;
  Status compare_call(const CallSignature& call) override;
  /// Of ranks of one node only.
  Result<std::unique_ptr<Communicator>> split(const std::vector<int>& ranks) override;
  MemoryNeed memory_for(size_t bytes) const override { return node_communicator_->memory_for(bytes); }
  size_t split_bytes(size_t threshold) const override;
  Result<std::unique_ptr<BucketReduction>> make_reduction(std::vector<Bucket> buckets,
                                                          const std::string& name,
                                                          StepCheck step_check) override;
  /// Other nodes get only the notifications of leaders.
  void notify(const std::string& name, uint32_t value) override;
  Result<uint32_t> wait_notification(int from, const std::string& name) override;
  Result<std::optional<uint32_t>> find_notification(int from, const std::string& name) override;
  void begin_call() override;
  std::optional<Duration> progress() override;
  Duration shorten_loss_timeout() override;
  void close() override;

 private:
  ClusterCommunicator(std::unique_ptr<NodeCommunicator> node_communicator,
                      std::shared_ptr<RemoteNotifications> notifications, std::shared_ptr<LeaderLink> link,
                      std::unique_ptr<InternodeResources> internode)
      : Communicator(node_communicator->share_group()),
        node_communicator_(std::move(node_communicator)),
        notifications_(std::move(notifications)),
        link_(std::move(link)),
        internode_(std::move(internode)) {}

  /// What `here` gives for the number of `from` in its node's group, if that is this node, or `there` for the leader of
  /// another. kInvalidArgument for others.
  template <typename Here, typename There>
  auto of_notifier(int from, Here here, There there) -> decltype(here(from));

  const std::unique_ptr<NodeCommunicator> node_communicator_;
  const std::shared_ptr<RemoteNotifications> notifications_;
  const std::shared_ptr<LeaderLink> link_;  ///< nullptr but on the leader
  const std::unique_ptr<InternodeResources> internode_;
  uint32_t calls_ = 0;  ///< of the job; see begin_call()
};

}  // namespace tarantella::collective::internode
