#pragma once
// The communication of all ranks of a job on several nodes: a communicator of the node's ranks, and what joins the
// nodes.

#include <memory>
#include <mutex>
#include <optional>

#include "collective/across/operations.h"
#include "engine/communicator.h"

namespace tarantella::engine {

/// Thread-safe. The destructor closes it.
class Cluster final : private Driven {
 public:
  /// Collective over the job, blocks until all its ranks have come. `memory` is that of this rank's node, with the
  /// node's ranks in ascending order; `wire` joins all ranks of the job, and is used by the node's lowest rank, nullptr
  /// on others. Errors: those of Communicator::create(); kPeerLost if a node does not come within options.timeout.
  static Result<std::unique_ptr<Cluster>> create(std::unique_ptr<transport::Memory> memory,
                                                 std::unique_ptr<transport::Wire> wire,
                                                 const collective::across::Nodes& nodes,
                                                 collective::GroupOptions options,
                                                 collective::across::BridgeOptions bridge_options);
  ~Cluster() override;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// The communicator of this rank's node. Calls on it reach the node's ranks only.
  const std::shared_ptr<Communicator>& node() { return node_; }
  const collective::across::Nodes& nodes() { return across_->nodes(); }
  /// The group of this rank's node. Its failure is that of the job.
  collective::Group& group() { return node_->group(); }
  /// This rank's number in the job.
  int rank() { return node_->job_rank(node_->rank()); }
  /// The number of ranks in the job.
  int size() { return static_cast<int>(nodes().ranks()); }
  int job_rank(int rank) { return rank; }

  /// As Communicator::close(); the other nodes learn that this one has left when its leader closes. Waits for the
  /// progress thread of a leader, for about two seconds at most.
  void close();

  /// See Bridge::expect_end().
  void expect_end() {
    if (bridge_ != nullptr) bridge_->expect_end();
  }

  /// As Communicator::call(), for operation(across); see collective/across/operations.h.
  template <typename F>
  Status call(F operation) {
    return node_->call([&](collective::Stage&) {
      count_call();
      return operation(*across_);
    });
  }

  /// As Communicator::add_plan(), collective over the job.
  Result<std::shared_ptr<Plan>> add_plan(const std::string& name, const std::vector<TensorSpec>& tensors,
                                         size_t threshold, Numbers numbers = Numbers::kNone) {
    TNT_RETURN_IF_ERROR(node_->call([this](collective::Stage&) {
      count_call();
      return Status();
    }));
    return node_->add_plan(name, tensors, threshold, numbers, across_.get());
  }
  /// As Group::post(), for all ranks of the job if this one is the leader of its node.
  void post(const std::string& name, uint32_t value);
  /// As Group::await_post(), of a rank of this node or the leader of another: kInvalidArgument otherwise. Not while
  /// another thread makes a collective call.
  Result<uint32_t> await_post(int from, const std::string& name);
  /// As Group::find_post(), of the same ranks.
  Result<std::optional<uint32_t>> find_post(int from, const std::string& name);
  /// As Communicator::create_group(), collective over the job, for ranks of one node: kInvalidArgument otherwise.
  Result<std::unique_ptr<Communicator>> create_group(const std::vector<int>& ranks);

 private:
  Cluster(std::shared_ptr<Communicator> node, std::shared_ptr<collective::across::Posts> posts,
          std::shared_ptr<collective::across::Bridge> bridge)
      : node_(std::move(node)), bridge_(std::move(bridge)), posts_(std::move(posts)) {}
  Need advance() override { return {.looks = true, .pause = bridge_->advance()}; }

  /// What `here` gives for the number of `from` in its node's group, if that is this node, or `there` for the leader of
  /// another. kInvalidArgument for others.
  template <typename Here, typename There>
  auto of_poster(int from, Here here, There there) -> decltype(here(from));

  /// Before each call of the job; inside node_->call().
  void count_call() {
    ++calls_;
    if (bridge_ != nullptr) bridge_->count_call(calls_);
  }

  const std::shared_ptr<Communicator> node_;
  const std::shared_ptr<collective::across::Bridge> bridge_;  ///< nullptr but on the leader
  std::unique_ptr<collective::across::Across> across_;
  std::shared_ptr<collective::across::Posts> posts_;
  uint32_t calls_ = 0;
  std::once_flag closed_;
};

}  // namespace tarantella::engine
