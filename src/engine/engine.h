#pragma once
// One job's communication in one process: the group, the blocking collectives, the plans and the thread that
// drives them.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collective/exchange.h"
#include "collective/group.h"
#include "engine/plan.h"

namespace tarantella::engine {

/// Several may live in one process. Thread-safe. Destruction closes it and leaves the job, once its plans are gone, too.
class Engine {
 public:
  /// Collective, blocks: takes the memory of this rank. `caller` as Group::caller(), `parent` as in Group::create().
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<transport::Memory> memory,
                                                collective::GroupOptions options,
                                                std::thread::id caller = std::this_thread::get_id(),
                                                collective::Group* parent = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  collective::Group& group() { return *group_; }

  /// Ends what is under way on this rank, in whatever thread, and all that comes later, with kPeerLost: blocking calls
  /// within a slice. Waits for no other rank. Not from within a Done. Idempotent.
  void close();

  /// Collective, blocks: an engine of some ranks, in the order given; nullptr for a rank that is not among them. It
  /// communicates on its own: its calls may run while others of this engine do. A close or a failure of this engine
  /// ends the wait. Errors: kInvalidArgument for a rank that does not exist or comes twice, kMismatch for lists that
  /// differ.
  Result<std::unique_ptr<Engine>> create_group(const std::vector<int>& ranks);

  /// Runs `operation(exchange)` as the only blocking collective of this process; see collective/operations.h.
  template <typename F>
  Status call(F operation) {
    const std::lock_guard lock(call_mutex_);
    TNT_RETURN_IF_ERROR(group_->failure());
    return operation(*exchange_);
  }

  /// Collective, blocks; see Plan::create(). The plan runs until it is removed and its last owner lets go.
  Result<std::shared_ptr<Plan>> add_plan(const std::string& name, const std::vector<TensorSpec>& tensors,
                                         size_t threshold);
  /// Ends what is under way in `plan` on this rank. Not collective.
  void remove_plan(const std::shared_ptr<Plan>& plan);

 private:
  explicit Engine(std::shared_ptr<collective::Group> group, std::unique_ptr<collective::Exchange> exchange);
  void run();
  std::vector<std::shared_ptr<Plan>> plans();

  std::shared_ptr<collective::Group> group_;
  std::unique_ptr<collective::Exchange> exchange_;
  std::mutex call_mutex_;
  std::mutex plans_mutex_;
  std::vector<std::shared_ptr<Plan>> plans_;
  std::atomic<bool> stopping_{false};
  std::once_flag closed_;
  std::thread progress_;
};

}  // namespace tarantella::engine
