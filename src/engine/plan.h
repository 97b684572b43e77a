#pragma once
// A fixed set of gradients that is summed over the ranks in every step, in buckets. A plan knows which tensors a bucket
// holds, when the bucket is full, and which callbacks wait for it. A collective::BucketReduction sums the bucket.
//
// advance() does what is due for the buckets. A thread that submits calls it, and so does the progress thread when
// another rank wakes it. One thread at a time is inside; a second one leaves a request, which the first serves, and
// returns.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "engine/bucket_times.h"
#include "engine/layout.h"
#include "engine/started_buckets.h"

namespace tarantella::engine {

/// Called once per submitted tensor, on the progress thread or inside a submit of any thread: with ok and the tensor's
/// sums, or with the job's failure and nullptr. `result` may be read until this rank submits the tensor again, as long
/// as a copy of the plan's memory() exists. Must not block.
using Done = std::function<void(const Status& status, const void* result)>;

using collective::StepCheck;

class Plan {
 public:
  /// Collective, blocks. Compares the tensors of the ranks and maps the shared memory. `threshold` in bytes, as in
  /// make_layout(). `step_check`, the same on all ranks: whether training steps are compared between nodes too, for a
  /// message a bucket more. Errors: kMismatch, kOutOfMemory; kInvalidArgument for an empty list.
  static Result<std::unique_ptr<Plan>> create(collective::Communicator& communicator, const std::string& name,
                                              const std::vector<TensorSpec>& tensors, size_t threshold,
                                              StepCheck step_check = StepCheck::kOnNode);

  /// Submits this step's value of tensor `index`: `count` elements of `dtype`, which must not change until `done` is
  /// called. `owner` keeps them while they are read: until after `done`, and after an error for as long as another
  /// machine may receive them. Without an owner, other machines receive a copy. On any thread, in any order; waits
  /// for other ranks for a tenth of a millisecond at most. The job fails with kMismatch if
  /// ranks submit values of different `training_step` to one sum. 0 is not compared. On an error `done` is not
  /// called. Errors: the job's failure; kInvalidArgument for an index, count or dtype that is not the plan's, or for a
  /// tensor whose last value is not summed yet.
  Status submit(size_t index, const void* data, size_t count, DType dtype, Done done,
                std::shared_ptr<const void> owner = nullptr, uint32_t training_step = 0);

  /// Submits all tensors and copies their sums to `outputs`. outputs[i] may be inputs[i], and bytes[i] is the size of
  /// both; `bytes` may be nullptr if the sizes are known to be the plan's; `training_step` as in submit(). Blocks until
  /// the step is complete or the job has failed. Errors as in submit().
  Status run(const void* const* inputs, const size_t* bytes, void* const* outputs,
             uint32_t training_step = 0);

  const Layout& layout() const { return layout_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  /// How often tensor `index` was summed; while it is not submitted.
  uint32_t completed_generations(size_t index) const {
    return buckets_[layout_.slots[index].first_bucket].generation.load(std::memory_order_relaxed) - 1;
  }
  /// Fails the job with `reason`: this rank cannot submit what others wait for. Any thread; does not block.
  void abort(const std::string& reason) {
    (void)group_.fail({Code::kInvalidArgument, text("rank ", group_.job_rank(group_.rank()), ": ", reason)});
  }
  /// From here on a tensor of this rank that is not finite fails the job, which names it. Any thread; does not block.
  void check_finite() { checks_finite_.store(true, std::memory_order_relaxed); }
  /// The id of the plan in the timeline of this process; 0: the timeline was off when the plan was made.
  uint32_t timeline_id() const { return timeline_id_; }
  /// Keeps the result area mapped while a copy exists.
  std::shared_ptr<void> memory() const { return reduction_->memory(); }

  /// Does what is due for all buckets, unless another thread does, which then checks once more. Any thread.
  void advance();
  /// What a started bucket waits for.
  struct Awaited {
    int rank;
    size_t bucket;
    uint32_t wait_id;  ///< differs between consecutive waits of the bucket
    bool operator==(const Awaited&) const = default;
  };
  /// The wait of the oldest bucket that waits; nothing if none does. Any thread.
  std::optional<Awaited> awaited() const;
  /// True if every tensor is submitted and none is summed: this rank has nothing to do. Any thread.
  bool only_waits() const { return unsubmitted_.load(std::memory_order_relaxed) == 0; }
  /// Ends every submitted tensor, and every later submit, with `status`, unless it has failed before. Any thread.
  void fail(const Status& status);
  /// Whether NodeGroup::creator_thread() made the plan, and so is assumed to submit its gradients.
  bool made_by_creator_thread() const { return made_by_creator_thread_; }
  /// Whether nothing else of this rank is submitted while it waits for the plan.
  bool is_exclusive() const { return step_check_ == StepCheck::kAllNodesExclusive; }
  /// The wait in error messages. Any thread.
  std::string describe(const Awaited& awaited) const;

 private:
  struct BucketState {
    std::atomic<size_t> missing;  ///< tensors not yet submitted in this step
    /// Which use of the bucket is filled or summed: one per training step.
    std::atomic<uint32_t> generation{1};
    BucketTimes times;  ///< used while there is a timeline
  };
  struct TensorState {
    std::atomic<bool> busy{false};
    size_t open_buckets;  ///< buckets not yet summed in this step; used by the thread in advance()
    Done done;            ///< with what follows set from the submit to the sum; guarded by mutex_
    std::shared_ptr<const void> owner;
  };
  struct Finished {
    std::shared_ptr<const void> owner;
    Done done;
    const void* result;
    Status status;
  };

  Plan(collective::NodeGroup& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
       std::unique_ptr<collective::BucketReduction> reduction, StepCheck step_check);

  /// Puts the part of the tensor at `slot` that lies in `bucket`; `data` is the whole tensor.
  void put(const TensorSlot& slot, size_t bucket, const std::byte* data,
           const std::shared_ptr<const void>& owner);
  /// Counts one more tensor, submitted at the time `ready` in `training_step`, as put into `bucket`. Starts
  /// the bucket and returns true if it was the last one: the caller must then call advance_buckets().
  bool count_in(size_t bucket, int64_t ready, uint32_t training_step);
  /// Tells the timeline the names of the tensors and the sizes of the buckets.
  void describe_to_timeline();
  /// Returns whether bytes of the bucket have begun to move: the caller must then wake the progress thread or
  /// make_progress().
  bool advance_bucket(size_t bucket, std::vector<Finished>& finished);
  void complete(size_t bucket, std::vector<Finished>& finished);
  /// As advance(), but adds the callbacks that are due to `finished` in place of calling them, and wakes no thread.
  /// Returns whether bytes of any bucket have begun to move.
  bool advance_buckets(std::vector<Finished>& finished);
  /// Once, for the thread inside. May throw: advance_buckets() then fails the job.
  bool advance_due_buckets(std::vector<Finished>& finished);
  /// Moves bytes on this thread for WaitPolicy::kSpinAfterSubmit, or until a tensor is added to `finished`. Returns
  /// whether bytes still move: the caller must then wake the progress thread.
  bool make_progress(std::vector<Finished>& finished);
  /// Wakes this rank's progress thread.
  void wake_progress_thread() { group_.wake_progress_thread(group_.rank()); }
  /// Calls and removes all callbacks in `finished`. Not inside advance_buckets(): a callback may submit and advance
  /// again.
  static void call_back(std::vector<Finished>& finished);
  /// Ends all started buckets, and moves the callbacks of all submitted tensors to `finished`, with `failed`.
  void break_off(const Status& failed, std::vector<Finished>& finished);
  Status failure();

  const std::shared_ptr<collective::NodeGroup> group_owner_;  ///< since a submit may outlive the context
  collective::NodeGroup& group_;
  const std::string name_;
  const std::vector<TensorSpec> tensors_;
  const Layout layout_;
  const std::unique_ptr<collective::BucketReduction> reduction_;
  const bool made_by_creator_thread_;
  const StepCheck step_check_;
  std::vector<BucketState> buckets_;
  std::vector<TensorState> states_;
  std::atomic<size_t> unsubmitted_;
  std::atomic<bool> checks_finite_{false};
  std::atomic<uint32_t> requests_{0};  ///< calls of advance() that the thread inside must serve
  std::vector<size_t> due_;            ///< the buckets that the thread in advance() checks
  mutable std::mutex mutex_;
  Status failure_;                      ///< guarded by mutex_
  StartedBuckets started_buckets_;      ///< guarded by mutex_; only the thread in advance() removes buckets
  timeline::Timeline* const timeline_;  ///< nullptr: it is off
  const uint32_t timeline_id_;
};

}  // namespace tarantella::engine
