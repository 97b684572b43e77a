#pragma once
// A rank's membership in a job or a group: a communicator that several threads may use, its plans, and the progress
// thread that advances both.

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/communicator.h"
#include "collective/stall_detector.h"
#include "collective/watchdog.h"
#include "engine/plan.h"
#include "engine/progress_thread.h"

namespace tarantella::engine {

/// A process may have several; one that was split off shares the progress thread of its parent. Thread-safe. The
/// destructor closes it; the group is left when its plans are gone, too.
class Context final : private Progressable {
 public:
  /// Collective, blocks until all ranks have come. Starts the progress thread. Errors: the failure of the job.
  static Result<std::unique_ptr<Context>> create(std::unique_ptr<collective::Communicator> communicator);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int job_rank(int rank) const { return communicator_->job_rank(rank); }
  /// The ranks of this rank's node. Their failure is that of the context.
  collective::NodeGroup& group() const { return communicator_->group(); }
  /// The rank's progress thread.
  const std::shared_ptr<ProgressThread>& progress_thread() const { return thread_; }

  /// Ends all running and later calls and submitted tensors of this rank, on any thread, with kPeerLost. Does not wait
  /// for other ranks; see Communicator::close(). Not inside a Done of its own plans. Idempotent.
  void close();

  /// Runs `operation(communicator)`, which makes blocking calls, on the calling thread. Blocks while another thread is
  /// inside. Returns the failure, and runs nothing, if there is one. An exception of `operation` fails the job, since
  /// other ranks may wait in the same call: kSystem.
  template <typename F>
  Status call(F operation) {
    const std::lock_guard lock(call_mutex_);
    TNT_RETURN_IF_ERROR(group().failure());
    communicator_->begin_call();
    try {
      return operation(*communicator_);
    } catch (const std::exception& error) {
      return group().fail_in("a collective call", {Code::kSystem, error.what()});
    }
  }

  /// See Communicator::split().
  Result<std::unique_ptr<Context>> split(const std::vector<int>& ranks);

  /// Collective, blocks; see Plan::create(). The progress thread advances the plan until remove_plan().
  Result<std::shared_ptr<Plan>> add_plan(const std::string& name, const std::vector<TensorSpec>& tensors,
                                         size_t threshold, StepCheck step_check = StepCheck::kOnNode);
  /// Not collective. Ends the submitted tensors of `plan` on this rank, and all later submits, with kInvalidArgument.
  void remove_plan(const std::shared_ptr<Plan>& plan);

  /// See Communicator. The first two block while another thread is in call().
  Status notify(const std::string& name, uint32_t value);
  Result<uint32_t> wait_notification(int from, const std::string& name);
  Result<std::optional<uint32_t>> find_notification(int from, const std::string& name) {
    return communicator_->find_notification(from, name);
  }
  Duration shorten_loss_timeout() { return communicator_->shorten_loss_timeout(); }

 private:
  /// The wait of a plan that is being watched. For the progress thread only.
  struct Watched {
    std::weak_ptr<Plan> plan;
    Plan::Awaited awaited;
    Clock::time_point checked_at;  ///< when the rank was last found to be still awaited
    std::optional<collective::StallDetector> detector;
  };

  Context(std::unique_ptr<collective::Communicator> communicator, std::shared_ptr<ProgressThread> thread);
  PollHint advance() override;
  Status check_stall(const std::shared_ptr<Plan>& plan, const Plan::Awaited& awaited);
  std::vector<std::shared_ptr<Plan>> plans();

  const std::shared_ptr<ProgressThread> thread_;
  const std::shared_ptr<collective::Communicator> communicator_;
  const std::shared_ptr<Progressable> progress_;  ///< its bytes between nodes
  std::mutex call_mutex_;
  std::mutex plans_mutex_;
  std::vector<std::shared_ptr<Plan>> plans_;
  std::once_flag closed_;
  collective::Watchdog watchdog_;
  std::optional<Watched> watched_;
};

}  // namespace tarantella::engine
