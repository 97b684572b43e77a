#pragma once
// The communication of some ranks of a job: their group, the blocking collectives and the plans.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/group.h"
#include "collective/roll_call.h"
#include "collective/stage.h"
#include "collective/watch.h"
#include "engine/engine.h"
#include "engine/plan.h"

namespace tarantella::engine {

/// A process may have several; a communicator shares the engine of the one that made it. Thread-safe. The destructor
/// closes it; the group is left when its plans are gone, too.
class Communicator final : private Driven {
 public:
  /// Collective, blocks. Makes the communicator of all ranks of a job: takes this rank's memory and starts an engine.
  static Result<std::unique_ptr<Communicator>> create(std::unique_ptr<transport::Memory> memory,
                                                      collective::GroupOptions options);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  collective::Group& group() { return *group_; }
  const std::shared_ptr<collective::Group>& share_group() const { return group_; }
  int rank() { return group_->rank(); }
  int size() { return group_->size(); }
  int job_rank(int rank) { return group_->job_rank(rank); }
  void post(const std::string& name, uint32_t value) { group_->post(name, value); }
  Result<uint32_t> await_post(int from, const std::string& name) { return group_->await_post(from, name); }
  Result<std::optional<uint32_t>> find_post(int from, const std::string& name) {
    return group_->find_post(from, name);
  }
  /// The rank's progress thread.
  const std::shared_ptr<Engine>& engine() const { return engine_; }

  /// Ends all running and later calls and submitted tensors of this rank, on any thread, with kPeerLost; blocking calls
  /// end within Group::kSlice. Does not wait for other ranks. Not inside a Done of its own plans. Idempotent.
  void close();

  /// kInvalidArgument if no group of a job of `size` ranks can have these `ranks`.
  static Status check_group(const std::vector<int>& ranks, size_t size);
  /// Collective, blocks. Makes a communicator of some ranks, numbered in the order of `ranks`; nullptr on a rank that
  /// is not in it. The two are independent: calls of both may run at the same time. The wait ends if this one is closed
  /// or fails. Errors: kInvalidArgument for a rank that does not exist or is there twice, kMismatch if the lists
  /// differ, kSystem if a rank cannot map its memory, which ends this one as well.
  Result<std::unique_ptr<Communicator>> create_group(const std::vector<int>& ranks);

  /// Runs `operation(stage)`, which makes blocking collectives (see collective/operations.h), on the calling thread.
  /// Blocks while another thread is inside. Returns the group's failure, and runs nothing, if there is one.
  template <typename F>
  Status call(F operation) {
    const std::lock_guard lock(call_mutex_);
    TNT_RETURN_IF_ERROR(group_->failure());
    return operation(*stage_);
  }

  /// Collective, blocks; see Plan::create(). The progress thread drives the plan until remove_plan().
  /// `across` joins this node to the others of the job, if there are any.
  Result<std::shared_ptr<Plan>> add_plan(const std::string& name, const std::vector<TensorSpec>& tensors,
                                         size_t threshold, Numbers numbers = Numbers::kNone,
                                         collective::across::Across* across = nullptr);
  /// Not collective. Ends the submitted tensors of `plan` on this rank, and all later submits, with kInvalidArgument.
  void remove_plan(const std::shared_ptr<Plan>& plan);

 private:
  /// The wait of a plan that is being watched. For the progress thread only.
  struct Watched {
    std::weak_ptr<Plan> plan;
    Plan::Awaited awaited;
    Clock::time_point looked;  ///< the last look that found the rank still awaited
    std::optional<collective::Watch> watch;
  };

  static Result<std::unique_ptr<Communicator>> create(std::unique_ptr<transport::Memory> memory,
                                                      collective::GroupOptions options,
                                                      std::thread::id caller, Communicator* parent);
  Communicator(std::shared_ptr<collective::Group> group, std::unique_ptr<collective::Stage> stage,
               std::shared_ptr<Engine> engine);
  Need advance() override;
  Status watch(const std::shared_ptr<Plan>& plan, const Plan::Awaited& awaited);
  std::vector<std::shared_ptr<Plan>> plans();

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<collective::Group> group_;
  const std::unique_ptr<collective::Stage> stage_;
  std::mutex call_mutex_;
  std::mutex plans_mutex_;
  std::vector<std::shared_ptr<Plan>> plans_;
  std::once_flag closed_;
  collective::RollCall roll_call_;
  std::optional<Watched> watched_;
};

}  // namespace tarantella::engine
