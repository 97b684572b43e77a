#include "engine/zero_contributions.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>

namespace tarantella::engine {

/// What the thread that submits, the callbacks and the owner share.
class ZeroContributions::Submitter : public std::enable_shared_from_this<Submitter> {
 public:
  explicit Submitter(std::shared_ptr<Plan> plan)
      : plan_(std::move(plan)), tensors_(plan_->tensors().size()), due_(tensors_.size()) {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].steps = plan_->completed_generations(i);
    std::iota(due_.rbegin(), due_.rend(), size_t{0});  // in the order of the buckets
  }

  std::vector<uint64_t> steps() {
    const std::lock_guard lock(mutex_);
    return counted();
  }

  std::vector<uint64_t> stop() {
    const std::lock_guard lock(mutex_);
    due_.clear();
    for (Tensor& tensor : tensors_) tensor.limit = tensor.steps;
    std::vector<uint64_t> steps = counted();
    for (const auto& bucket : plan_->layout().buckets) {
      // submit_due() may be between two tensors of a bucket, which takes its steps with all of them
      uint64_t max_steps = 0;
      for (const size_t i : bucket.tensors) max_steps = std::max(max_steps, steps[i]);
      for (const size_t i : bucket.tensors) steps[i] = max_steps;
    }
    return steps;
  }

  Status finish(const std::vector<uint64_t>& steps) {
    std::unique_lock lock(mutex_);
    due_.clear();
    for (size_t i = tensors_.size(); i-- > 0;) {  // in the order of the buckets
      tensors_[i].limit = steps[i];
      if (tensors_[i].is_due()) due_.push_back(i);
    }
    changed_.notify_all();
    changed_.wait(lock, [this] {
      const auto open = [](const Tensor& each) { return each.under_way || each.is_due(); };
      return !failed_.ok() || closed_ || std::none_of(tensors_.begin(), tensors_.end(), open);
    });
    return failed_;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// Submits what is due, until close() or a failure. Never inside a Done: one could set off the next without end.
  void submit_due() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closed_ || !failed_.ok() || !due_.empty(); });
      if (closed_ || !failed_.ok()) return;
      const size_t i = due_.front();
      due_.pop_front();
      tensors_[i].under_way = true;
      ++tensors_[i].steps;
      lock.unlock();
      const TensorSpec& spec = plan_->tensors()[i];
      const Status refused = plan_->submit(
          i, nullptr, spec.count(), spec.dtype,
          [self = shared_from_this(), i](const Status& status, const void*) { self->done(i, status); });
      if (refused.code() == Code::kInvalidArgument)
        plan_->abort(refused.message());  // the others wait for it
      if (!refused.ok()) done(i, refused);
      lock.lock();
    }
  }

 private:
  struct Tensor {
    uint64_t steps = 0;  ///< of the plan, in which this rank has submitted it
    uint64_t limit = UINT64_MAX;
    bool under_way = false;

    bool is_due() const { return !under_way && steps < limit; }
  };

  std::vector<uint64_t> counted() const {
    std::vector<uint64_t> counts;
    for (const Tensor& tensor : tensors_) counts.push_back(tensor.steps);
    return counts;
  }

  void done(size_t i, const Status& status) {
    const std::lock_guard lock(mutex_);
    tensors_[i].under_way = false;
    if (failed_.ok()) failed_ = status;
    if (tensors_[i].is_due()) due_.push_back(i);
    changed_.notify_all();
  }

  const std::shared_ptr<Plan> plan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Tensor> tensors_;  ///< as all below, guarded by mutex_
  std::deque<size_t> due_;
  Status failed_;
  bool closed_ = false;
};

ZeroContributions::ZeroContributions(std::shared_ptr<Plan> plan)
    : submitter_(std::make_shared<Submitter>(std::move(plan))),
      before_(submitter_->steps()),
      submits_([submitter = submitter_] { submitter->submit_due(); }) {}

ZeroContributions::~ZeroContributions() {
  submitter_->close();
  submits_.join();
}

std::vector<uint64_t> ZeroContributions::stop() { return submitter_->stop(); }

Status ZeroContributions::finish(const std::vector<uint64_t>& steps) { return submitter_->finish(steps); }

}  // namespace tarantella::engine
