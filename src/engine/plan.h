#pragma once
// A fixed set of gradients that is summed over the ranks in every step, in buckets. A plan knows which tensors a bucket
// holds, when the bucket is full, and which callbacks wait for it. A collective::BucketReduction sums the bucket.
//
// advance() takes the steps that are due. A thread that submits calls it, and so does the progress thread when another
// rank has rung. One thread at a time is inside; a second one leaves a request, which the first serves, and returns.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collective/bucket_reduction.h"
#include "collective/group.h"
#include "collective/stage.h"
#include "engine/all_ranks.h"
#include "engine/bucket_times.h"
#include "engine/layout.h"
#include "engine/under_way.h"

namespace tarantella::engine {

/// Called once per submitted tensor, on the progress thread or inside a submit of any thread: with ok and the tensor's
/// sums, or with the job's failure and nullptr. `result` may be read until this rank submits the tensor again, as long
/// as a copy of the plan's memory() exists. Must not block.
using Done = std::function<void(const Status& status, const void* result)>;

using collective::Numbers;

class Plan {
 public:
  /// Collective, blocks. Compares the tensors of the ranks and maps the shared memory. `threshold` in bytes, as in
  /// make_layout(). `numbers`, the same on all ranks: those of submit() are compared between nodes too, for one message
  /// a bucket more. Errors: kMismatch, kOutOfMemory; kInvalidArgument for an empty list.
  static Result<std::unique_ptr<Plan>> create(AllRanks ranks, const std::string& name,
                                              const std::vector<TensorSpec>& tensors, size_t threshold,
                                              Numbers numbers = Numbers::kNone);

  /// Submits this step's value of tensor `index`: `count` elements of `dtype`, which must not change until `done` is
  /// called; `kept` says whether they stay valid after an error. On any thread, in any order; waits for other ranks for
  /// a tenth of a millisecond at most. `number` is that of the training step: the job fails with kMismatch if ranks
  /// submit values of different steps to one sum. 0 is not compared. On an error `done` is not called. Errors: the
  /// job's failure; kInvalidArgument for an index, count or dtype that is not the plan's, or for a tensor whose last
  /// value is not summed yet.
  Status submit(size_t index, const void* data, size_t count, DType dtype, Done done,
                collective::Kept kept = collective::Kept::kUntilDone, uint32_t number = 0);

  /// Submits all tensors and copies their sums to `outputs`. outputs[i] may be inputs[i], and bytes[i] is the size of
  /// both; `bytes` may be nullptr if the sizes are known to be the plan's; `number` as in submit(). Blocks until the
  /// step is complete or the job has failed. Errors as in submit().
  Status run(const void* const* inputs, const size_t* bytes, void* const* outputs, uint32_t number = 0);

  const Layout& layout() const { return layout_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  /// In how many steps tensor `index` was summed; while it is not submitted.
  uint32_t steps(size_t index) const {
    return buckets_[layout_.places[index].first_bucket].step.load(std::memory_order_relaxed) - 1;
  }
  /// Fails the job with `reason`: this rank cannot submit what others wait for. Any thread; does not block.
  void abort(const std::string& reason) {
    (void)group_.fail({Code::kInvalidArgument, text("rank ", group_.job_rank(group_.rank()), ": ", reason)});
  }
  /// From here on a tensor of this rank that is not finite fails the job, which names it. Any thread; does not block.
  void check_finite() { checks_finite_.store(true, std::memory_order_relaxed); }
  /// The number of the plan in the timeline of this process; 0: the timeline was off when the plan was made.
  uint32_t timeline_number() const { return timeline_number_; }
  /// Keeps the result area mapped while a copy exists.
  std::shared_ptr<void> memory() const { return reduction_->memory(); }

  /// Takes all steps that are due, unless another thread does, which then looks again. Any thread.
  void advance();
  /// What a started bucket waits for.
  struct Awaited {
    int rank;
    size_t bucket;
    uint32_t wait;  ///< differs between consecutive waits of the bucket
    bool operator==(const Awaited&) const = default;
  };
  /// What the bucket that was started first of those that wait waits for, if one waits. Any thread.
  std::optional<Awaited> awaited() const;
  /// True if every tensor is submitted and none is summed: this rank has nothing to do. Any thread.
  bool only_waits() const { return unsubmitted_.load(std::memory_order_relaxed) == 0; }
  /// Ends every submitted tensor, and every later submit, with `status`. Any thread.
  void fail(const Status& status);
  /// Whether Group::caller() made the plan, and so is assumed to submit its gradients.
  bool of_caller() const { return of_caller_; }
  /// Whether nothing else of this rank is submitted while it waits for the plan.
  bool is_last() const { return numbers_ == Numbers::kLast; }
  /// The wait in error messages. Any thread.
  std::string describe(const Awaited& awaited) const;

 private:
  struct BucketState {
    std::atomic<size_t> missing;  ///< tensors not yet submitted in this step
    std::atomic<uint32_t> step{1};
    BucketTimes times;  ///< used while there is a timeline
  };
  struct TensorState {
    std::atomic<bool> busy{false};
    size_t open_buckets;  ///< buckets not yet summed in this step; used by the thread in advance()
    Done done;            ///< set from the submit to the sum; guarded by mutex_
  };
  struct Finished {
    Done done;
    const void* result;
    Status status;
  };

  Plan(collective::Group& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
       std::unique_ptr<collective::BucketReduction> reduction, Numbers numbers);

  /// Puts the part of the tensor at `place` that lies in `bucket`; `data` is the whole tensor.
  void put(const Place& place, size_t bucket, const std::byte* data, collective::Kept kept);
  /// Counts one more tensor, submitted at the time `ready` in the training step `number`, as put into `bucket`. Starts
  /// the bucket and returns true if it was the last one: the caller must then look, with take_steps().
  bool count_in(size_t bucket, int64_t ready, uint32_t number);
  /// Tells the timeline the names of the tensors and the sizes of the buckets.
  void introduce();
  /// Returns whether bytes of the bucket have begun to move: the caller must then ring() or drive().
  bool advance_bucket(size_t bucket, std::vector<Finished>& finished);
  void complete(size_t bucket, std::vector<Finished>& finished);
  /// As advance(), but adds the callbacks that are due to `finished` in place of calling them, and does not ring().
  /// Returns whether bytes of any bucket have begun to move.
  bool take_steps(std::vector<Finished>& finished);
  /// Moves bytes on this thread for kShort, or until a tensor is added to `finished`. Returns whether bytes still move:
  /// the caller must then ring().
  bool drive(std::vector<Finished>& finished);
  /// Wakes this rank's progress thread.
  void ring() { group_.ring(group_.rank()); }
  /// Calls and removes all callbacks in `finished`. Not inside take_steps(): a callback may submit and advance again.
  static void call_back(std::vector<Finished>& finished);
  /// Moves the callbacks of all submitted tensors to `finished`, with `failed`.
  void break_off(const Status& failed, std::vector<Finished>& finished);
  Status failure();

  const std::shared_ptr<collective::Group> group_owner_;  ///< since a submit may outlive the engine
  collective::Group& group_;
  const std::string name_;
  const std::vector<TensorSpec> tensors_;
  const Layout layout_;
  const std::unique_ptr<collective::BucketReduction> reduction_;
  const bool of_caller_;
  const Numbers numbers_;
  std::vector<BucketState> buckets_;
  std::vector<TensorState> states_;
  std::atomic<size_t> unsubmitted_;
  std::atomic<bool> checks_finite_{false};
  std::atomic<uint32_t> requests_{0};  ///< calls of advance() that the thread inside must serve
  std::vector<size_t> due_;            ///< the buckets that the thread in advance() looks at
  mutable std::mutex mutex_;
  Status failure_;                      ///< guarded by mutex_
  UnderWay under_way_;                  ///< guarded by mutex_; only the thread in advance() removes buckets
  timeline::Timeline* const timeline_;  ///< nullptr: it is off
  const uint32_t timeline_number_;
};

}  // namespace tarantella::engine
