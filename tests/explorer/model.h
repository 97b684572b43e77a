#pragma once
// One rank's part of a training step: a plan of int32 tensors, and a check of their sums.

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/context.h"
#include "explorer/fibers.h"

namespace tarantella {

/// Fails the run unless `status` is ok.
inline void must(const Status& status) {
  if (!status.ok()) ::explorer::check(false, text("failed: ", status.message()));
}

/// Its constructor is collective. A step is begin_step(), submit() for each tensor from any thread, wait().
class Model {
 public:
  Model(engine::Context& context, const std::vector<int64_t>& counts, size_t threshold)
      : rank_(context.group().rank()), size_(context.group().size()) {
    std::vector<engine::TensorSpec> specs;
    for (const int64_t count : counts) {
      specs.push_back({text("w", specs.size()), DType::kInt32, {count}});
      gradients_.emplace_back(static_cast<size_t>(count));
    }
    auto plan = context.add_plan("p", specs, threshold);
    must(plan.status());
    plan_ = plan.value();
  }

  engine::Plan& plan() { return *plan_; }

  void begin_step() {
    ++step_;
    open_ = gradients_.size();
    for (size_t tensor = 0; tensor < gradients_.size(); ++tensor)
      std::fill(gradients_[tensor].begin(), gradients_[tensor].end(), element(rank_, tensor));
  }
  /// Submits the tensor's gradient of this step. `then` runs inside the plan's callback.
  Status submit(size_t tensor, const std::function<void()>& then = {}) {
    const auto done = [this, tensor, then](const Status& status, const void* result) {
      if (status.ok()) check_sums(tensor, static_cast<const int32_t*>(result));
      if (then) then();
      const std::lock_guard lock(mutex_);
      if (end_.ok()) end_ = status;
      ::explorer::check(open_-- != 0, "a second callback for one tensor");
      changed_.notify_all();
    };
    return plan_->submit(tensor, gradients_[tensor].data(), gradients_[tensor].size(), DType::kInt32, done);
  }
  /// Waits for the callbacks of all tensors but the `refused` ones. Returns the first error that they reported.
  Status wait(size_t refused = 0) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ == refused; });
    return end_;
  }

 private:
  int32_t element(int rank, size_t tensor) const {
    return (step_ * 4 + rank) * 16 + static_cast<int32_t>(tensor);
  }
  void check_sums(size_t tensor, const int32_t* result) const {
    int32_t sum = 0;
    for (int rank = 0; rank < size_; ++rank) sum += element(rank, tensor);
    const size_t count = gradients_[tensor].size();
    const bool right = std::all_of(result, result + count, [sum](int32_t value) { return value == sum; });
    if (!right) ::explorer::check(false, text("a wrong sum of tensor ", tensor));
  }

  const int rank_;
  const int size_;
  std::vector<std::vector<int32_t>> gradients_;
  std::shared_ptr<engine::Plan> plan_;
  int32_t step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t open_ = 0;
  Status end_;
};

}  // namespace tarantella
