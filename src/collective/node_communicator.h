#pragma once
// The ranks of one node, which share memory. Each collective has a file of its own, over the rounds of
// staging_buffers.h.

#include "collective/communicator.h"
#include "collective/staging_buffers.h"

namespace tarantella::collective {

class NodeCommunicator final : public Communicator {
 public:
  /// Collective, blocks. Takes this rank's memory. Errors: those of NodeGroup::create() and NodeGroup::map().
  static Result<std::unique_ptr<NodeCommunicator>> create(std::unique_ptr<transport::NodeMemory> memory,
                                                          GroupOptions options);
  /// The same in a group that exists.
  static Result<std::unique_ptr<NodeCommunicator>> create(std::shared_ptr<NodeGroup> group);

  /// For the collectives between nodes, which begin and end with rounds of the node's ranks.
  StagingBuffers& staging() { return *staging_; }

  int rank() const override { return group().rank(); }
  int size() const override { return group().size(); }
  int job_rank(int rank) const override { return group().job_rank(rank); }
  Status allreduce(const void* input, void* output, size_t count, DType dtype, Reduction reduction,
                   std::string_view name, const std::shared_ptr<const void>& owner = nullptr) override;
  Status reduce_scatter(const void* input, void* output, size_t count, DType dtype, Reduction reduction,
                        std::string_view name) override;
  Status broadcast(void* data, size_t count, DType dtype, int root, std::string_view name) override;
  Status allgather(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                   std::string_view name) override;
  Status alltoall(const void* input, std::span<const uint64_t> send_counts, void* output,
                  std::span<const uint64_t> receive_counts, DType dtype, std::string_view name) override;
  Status compare_call(const CallSignature& call) override { return staging_->exchange(call); }
  Result<std::unique_ptr<Communicator>> split(const std::vector<int>& ranks) override;
  MemoryNeed memory_for(size_t bytes) const override;
  Result<std::unique_ptr<BucketReduction>> make_reduction(std::vector<Bucket> buckets,
                                                          const std::string& name,
                                                          StepCheck step_check) override;
  void notify(const std::string& name, uint32_t value) override { group().notify(name, value); }
  Result<uint32_t> wait_notification(int from, const std::string& name) override {
    return group().wait_notification(from, name);
  }
  Result<std::optional<uint32_t>> find_notification(int from, const std::string& name) override {
    return group().find_notification(from, name);
  }

 private:
  NodeCommunicator(std::shared_ptr<NodeGroup> group, std::unique_ptr<StagingBuffers> staging)
      : Communicator(std::move(group)), staging_(std::move(staging)) {}

  const std::unique_ptr<StagingBuffers> staging_;
};

}  // namespace tarantella::collective
