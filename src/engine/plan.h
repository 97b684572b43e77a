#pragma once
// A fixed set of gradients that is summed over ranks every step, in buckets, in shared memory.
//
// A rank copies each gradient into its own input area (submit). When a bucket is full on every rank, each rank
// sums its slice of all inputs, in rank order, straight into the one result area. When every slice is there the
// callbacks run. Nobody's input is read any more then, and the results stand until every rank has submitted the
// whole bucket again.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective/exchange.h"
#include "collective/group.h"
#include "engine/layout.h"
#include "engine/trace.h"

namespace tarantella::engine {

/// Called once a submitted tensor: on the progress thread with ok and the tensor's sums, or with the job's
/// failure and nullptr. `result` may be read until this rank submits the tensor again. Must not block.
using Done = std::function<void(const Status& status, const void* result)>;

class Plan {
 public:
  /// Collective. Compares the tensors over ranks and maps the shared memory. `threshold` as in make_layout().
  /// Errors: kMismatch, kOutOfMemory; kInvalidArgument for an empty list.
  static Result<std::unique_ptr<Plan>> create(collective::Exchange& exchange, const std::string& name,
                                              const std::vector<TensorSpec>& tensors, size_t threshold);

  /// Hands in this step's value of tensor `index`: `count` elements of `dtype`, copied before it returns. Any
  /// thread, any order; does not wait for other ranks. On an error `done` is not called. Errors: the job's
  /// failure; kInvalidArgument for an index, count or dtype that is not the plan's, or a tensor still under way.
  Status submit(size_t index, const void* data, size_t count, DType dtype, Done done);

  const Layout& layout() const { return layout_; }
  const Trace& trace() const { return trace_; }

  // The rest is the progress thread's.

  /// Takes every step that can be taken now; true if there was one.
  bool advance();
  /// A rank that a bucket under way waits for, or -1.
  int awaited_rank() const;
  /// True when every tensor is handed in, so that this rank has nothing else to do than to wait.
  bool all_submitted() const { return unsubmitted_.load(std::memory_order_relaxed) == 0; }
  /// Ends every tensor under way with `status`, and every later submit.
  void fail(const Status& status);
  std::string describe() const;

 private:
  enum class Phase { kFilling, kArrived, kReduced };
  struct BucketState {
    std::atomic<size_t> missing;  ///< tensors not yet handed in this step
    std::atomic<uint32_t> step{1};
    Phase phase = Phase::kFilling;
  };
  struct TensorState {
    std::atomic<bool> busy{false};
    Done done;  ///< set while under way; guarded by mutex_
  };
  /// Which stage of a bucket a rank has posted: its step number, in shared memory.
  enum class Stage : size_t { kArrived = 0, kReduced = 1 };

  Plan(collective::Group& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
       transport::Region region);

  transport::Word& posted(Stage stage, int rank, size_t bucket) const;
  std::byte* input(int rank) const;
  std::byte* result() const;
  /// The first rank that has not posted `stage` of `bucket` for `step`, or -1.
  int first_behind(Stage stage, size_t bucket, uint32_t step) const;
  void reduce(size_t bucket);
  void complete(size_t bucket);

  collective::Group& group_;
  const std::string name_;
  const std::vector<TensorSpec> tensors_;
  const Layout layout_;
  const transport::Region region_;
  std::vector<BucketState> buckets_;
  std::vector<TensorState> states_;
  std::vector<std::vector<size_t>> members_;  ///< tensors by bucket
  std::atomic<size_t> unsubmitted_;
  std::mutex mutex_;
  Status failure_;  ///< guarded by mutex_
  Trace trace_;
};

}  // namespace tarantella::engine
