#pragma once
// A fixed set of gradients that is summed over ranks every step, in buckets: which tensors, which bucket is full, whose
// callback. How a bucket is summed is a collective::BucketReduction's business.
//
// Whoever has something new, a thread that submits or the progress thread that a peer's bell woke, takes the steps
// that are due. One thread does so at a time; one that comes meanwhile leaves word and goes on.

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
#include "engine/layout.h"
#include "engine/trace.h"

namespace tarantella::engine {

/// Called once a submitted tensor, on the progress thread or inside a submit of any thread: with ok and the tensor's
/// sums, or with the job's failure and nullptr. `result` may be read until this rank submits the tensor again, while
/// the plan's memory() is held. Must not block.
using Done = std::function<void(const Status& status, const void* result)>;

class Plan {
 public:
  /// Collective. Compares the tensors over ranks and maps the shared memory. `threshold` as in make_layout().
  /// Errors: kMismatch, kOutOfMemory; kInvalidArgument for an empty list.
  static Result<std::unique_ptr<Plan>> create(collective::Stage& stage, const std::string& name,
                                              const std::vector<TensorSpec>& tensors, size_t threshold);

  /// Hands in this step's value of tensor `index`: `count` elements of `dtype`, which must stay as they are until
  /// `done` is called. Any thread, any order; does not wait for other ranks. On an error `done` is not called. Errors:
  /// the job's failure; kInvalidArgument for an index, count or dtype that is not the plan's, or a tensor still under
  /// way.
  Status submit(size_t index, const void* data, size_t count, DType dtype, Done done);

  /// Hands in all tensors and waits for their sums: input and output `i` hold those of tensor `i`, and may be the same.
  /// `bytes` are their sizes, or nullptr where they are known to be the plan's.
  /// Blocks until the step ends; the progress thread ends it too when the job fails. Errors as in submit().
  Status run(const void* const* inputs, const size_t* bytes, void* const* outputs);

  const Layout& layout() const { return layout_; }
  /// Ends the job's communication: this rank cannot hand in what others wait for. Any thread.
  void abort(const std::string& reason) {
    (void)group_.fail({Code::kInvalidArgument, text("rank ", group_.job_rank(group_.rank()), ": ", reason)});
  }
  const Trace& trace() const { return trace_; }
  /// Keeps the result area mapped while a copy lives.
  std::shared_ptr<void> memory() const { return reduction_->memory(); }

  /// Takes every step that is due, unless another thread is at it, which then looks again. Any thread.
  void advance();
  /// What a bucket under way waits for.
  struct Awaited {
    int rank;
    size_t bucket;
    uint32_t wait;  ///< tells one of the bucket from the next
    bool operator==(const Awaited&) const = default;
  };
  /// That of the first bucket that waits, if one does. Any thread.
  std::optional<Awaited> awaited() const;
  /// True when every tensor is handed in, so that this rank has nothing else to do than to wait. Any thread.
  bool all_submitted() const { return unsubmitted_.load(std::memory_order_relaxed) == 0; }
  /// Ends every tensor under way with `status`, and every later submit. Any thread.
  void fail(const Status& status);
  /// Whether Group::caller() made the plan, and so is taken to hand in its gradients.
  bool of_caller() const { return of_caller_; }
  /// A wait, for errors. Any thread.
  std::string describe(const Awaited& awaited) const;

 private:
  struct BucketState {
    std::atomic<size_t> missing;  ///< tensors not yet handed in this step
    std::atomic<uint32_t> step{1};
  };
  struct TensorState {
    std::atomic<bool> busy{false};
    size_t open_buckets;  ///< not yet summed this step; of the thread in advance()
    Done done;            ///< set while under way; guarded by mutex_
  };
  struct Finished {
    Done done;
    const void* result;
    Status status;
  };

  Plan(collective::Group& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
       std::unique_ptr<collective::BucketReduction> reduction);

  /// Puts the part of a tensor that lies in `bucket`.
  void put(const Place& place, size_t bucket, const std::byte* data);
  /// One tensor less is missing in `bucket`: true for the last one, after which there may be steps to take.
  bool count_in(size_t bucket);
  void advance_bucket(size_t bucket, std::vector<Finished>& finished);
  void complete(size_t bucket, std::vector<Finished>& finished);
  /// As advance(), but adds what is to be called back to `finished`.
  void take_steps(std::vector<Finished>& finished);
  /// Empties `finished`. Not within take_steps(): what a callback sets free may submit and advance again.
  static void call_back(std::vector<Finished>& finished);
  /// Takes the callbacks of all tensors under way.
  void break_off(const Status& failed, std::vector<Finished>& finished);
  Status failure();

  const std::shared_ptr<collective::Group> group_owner_;  ///< a submit may outlast the engine
  collective::Group& group_;
  const std::string name_;
  const std::vector<TensorSpec> tensors_;
  const Layout layout_;
  const std::unique_ptr<collective::BucketReduction> reduction_;
  const bool of_caller_;
  std::vector<BucketState> buckets_;
  std::vector<TensorState> states_;
  std::atomic<size_t> unsubmitted_;
  std::atomic<uint32_t> requests_{0};  ///< calls of advance() that the thread inside has to serve
  std::mutex mutex_;
  Status failure_;  ///< guarded by mutex_
  Trace trace_;
};

}  // namespace tarantella::engine
