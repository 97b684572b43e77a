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

/// Several may live in one process; those made of one another share its engine. Thread-safe. Destruction closes it and
/// leaves the group, once its plans are gone, too.
class Communicator final : private Driven {
 public:
  /// Collective, blocks: that of all ranks of a job. Takes this rank's memory, and starts an engine.
  static Result<std::unique_ptr<Communicator>> create(std::unique_ptr<transport::Memory> memory,
                                                      collective::GroupOptions options);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  collective::Group& group() { return *group_; }

  /// Ends what is under way on this rank, in whatever thread, and all that comes later, with kPeerLost: blocking calls
  /// within a slice. Waits for no other rank. Not from within a Done. Idempotent.
  void close();

  /// Collective, blocks: that of some ranks, in the order given; nullptr for a rank that is not among them. It
  /// communicates on its own: its calls may run while others of this one do. A close or a failure of this one
  /// ends the wait. Errors: kInvalidArgument for a rank that does not exist or comes twice, kMismatch for lists that
  /// differ.
  Result<std::unique_ptr<Communicator>> create_group(const std::vector<int>& ranks);

  /// Runs `operation(stage)` as the only blocking collective of this rank; see collective/operations.h.
  template <typename F>
  Status call(F operation) {
    const std::lock_guard lock(call_mutex_);
    TNT_RETURN_IF_ERROR(group_->failure());
    return operation(*stage_);
  }

  /// Collective, blocks; see Plan::create(). The plan runs until it is removed and its last owner lets go.
  Result<std::shared_ptr<Plan>> add_plan(const std::string& name, const std::vector<TensorSpec>& tensors,
                                         size_t threshold);
  /// Ends what is under way in `plan` on this rank. Not collective.
  void remove_plan(const std::shared_ptr<Plan>& plan);

 private:
  /// The wait of a plan that is being watched. Of the progress thread.
  struct Watched {
    std::weak_ptr<Plan> plan;
    Plan::Awaited awaited;
    Clock::time_point looked;  ///< when it was last found in vain
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
