#include "engine/plan.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/wait_policy.h"
#include "engine/compare.h"
#include "engine/finite.h"

namespace tarantella::engine {
namespace {

/// Whether this thread is in a callback. It makes no progress on a step that it submits there: their callbacks would
/// nest.
thread_local bool in_callback = false;

collective::Range range_of(const TensorSlot& slot) { return {slot.offset, slot.offset + slot.bytes}; }

size_t bucket_count(const TensorSlot& slot) { return slot.last_bucket - slot.first_bucket + 1; }

}  // namespace

Result<std::unique_ptr<Plan>> Plan::create(collective::Communicator& communicator, const std::string& name,
                                           const std::vector<TensorSpec>& tensors, size_t threshold,
                                           StepCheck step_check) {
  if (tensors.empty()) return Status(Code::kInvalidArgument, text(name, " has no tensors to reduce"));
  // before the layout, which allocates memory for each bucket
  TNT_RETURN_IF_ERROR(compare_plans(communicator, name, tensors, threshold, step_check));
  Layout layout = make_layout(tensors, threshold, communicator.split_bytes(threshold));
  auto reduction =
      communicator.make_reduction({layout.buckets.begin(), layout.buckets.end()}, name, step_check);
  if (!reduction.ok()) return reduction.status();
  return std::unique_ptr<Plan>(new Plan(communicator.group(), name, tensors, std::move(layout),
                                        std::move(reduction).value(), step_check));
}

Plan::Plan(collective::NodeGroup& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
           std::unique_ptr<collective::BucketReduction> reduction, StepCheck step_check)
    : group_owner_(group.shared_from_this()),
      group_(group),
      name_(std::move(name)),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      reduction_(std::move(reduction)),
      made_by_creator_thread_(group.is_creator_thread()),
      step_check_(step_check),
      buckets_(layout_.buckets.size()),
      states_(tensors_.size()),
      unsubmitted_(tensors_.size()),
      started_buckets_(layout_.buckets.size()),
      timeline_(timeline::current().load(std::memory_order_acquire)),
      timeline_id_(timeline_ == nullptr ? 0 : timeline::new_plan()) {
  due_.reserve(buckets_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) buckets_[b].missing = layout_.buckets[b].tensors.size();
  for (size_t i = 0; i < tensors_.size(); ++i) states_[i].open_buckets = bucket_count(layout_.slots[i]);
  if (timeline_ != nullptr) describe_to_timeline();
}

void Plan::describe_to_timeline() {
  timeline_->name(timeline::Kind::kPlanName, timeline_id_, 0, name_);
  for (size_t b = 0; b < buckets_.size(); ++b)
    timeline_->bucket_size(timeline_id_, b, layout_.buckets[b].bytes);
  for (size_t i = 0; i < tensors_.size(); ++i)
    timeline_->name(timeline::Kind::kTensorName, timeline_id_, i, tensors_[i].name);
}

Status Plan::submit(size_t index, const void* data, size_t count, DType dtype, Done done,
                    std::shared_ptr<const void> owner, uint32_t training_step) {
  if (index >= tensors_.size()) {
    return {Code::kInvalidArgument,
            text(name_, " has ", tensors_.size(), " tensors, there is no number ", index)};
  }
  const TensorSpec& tensor = tensors_[index];
  const TensorSlot& slot = layout_.slots[index];
  if (dtype != tensor.dtype || count * size_of(dtype) != slot.bytes) {
    return {Code::kInvalidArgument,
            text("the gradient of ", tensor.describe(), " was submitted as ", count, " x ",
                 tarantella::name_of(dtype), "; compile the model again after changing it")};
  }
  TensorState& state = states_[index];
  TNT_RETURN_IF_ERROR(failure());  // checked first: a failure leaves tensors busy
  if (checks_finite_.load(std::memory_order_relaxed) && data != nullptr && !is_finite(data, count, dtype)) {
    const uint32_t generation = buckets_[slot.first_bucket].generation.load(std::memory_order_relaxed);
    return group_.fail(
        {Code::kSystem,
         text("rank ", group_.job_rank(group_.rank()), ": the gradient of ", tensor.describe(),
              " is not finite in step ", generation, " of ", name_,
              " (TNT_CHECK_GRADIENTS): look for a division by 0, a logarithm or root of 0, or a "
              "learning rate that is too high")});
  }
  if (state.busy.exchange(true, std::memory_order_acq_rel)) {
    return {Code::kInvalidArgument, text("the gradient of ", tensor.describe(),
                                         " was submitted twice in one step; is an optimizer applied twice?")};
  }
  const int64_t ready = timeline_ == nullptr ? 0 : timeline_->gradient(timeline_id_, index);
  const auto* bytes = static_cast<const std::byte*>(data);
  // Starts at the tensor's end, which was computed last and is still in the caches.
  const bool polls = slot.first_bucket != slot.last_bucket;  // and after each of them
  if (polls) reduction_->begin_polling();
  std::vector<Finished> finished;
  for (size_t b = slot.last_bucket; b > slot.first_bucket; --b) {
    put(slot, b, bytes, owner);
    if (count_in(b, ready, training_step) && advance_buckets(finished)) wake_progress_thread();
    if (finished.empty()) continue;
    // Callbacks may take long, and this call does not poll meanwhile. What came without a wake-up is found here.
    reduction_->end_polling();
    if (advance_buckets(finished)) wake_progress_thread();
    call_back(finished);
    reduction_->begin_polling();
  }
  if (polls) reduction_->end_polling();
  put(slot, slot.first_bucket, bytes, owner);
  Status failed;
  {
    // this call reads no data of the caller from here on, so a failure may call back at any time
    const std::lock_guard lock(mutex_);
    failed = failure_;
    if (failed.ok()) {
      state.done = std::move(done);
      state.owner = std::move(owner);
    }
  }
  if (!failed.ok()) {
    // no other tensor owns the values of a bucket that this one fills
    const collective::Range bucket = layout_.buckets[slot.first_bucket].range();
    if (range_of(slot).intersect(bucket) == bucket) reduction_->abort(slot.first_bucket);
    // a thread that entered before the failure may still sum the first buckets
    while (requests_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    return failed;
  }
  unsubmitted_.fetch_sub(1, std::memory_order_relaxed);
  if (!count_in(slot.first_bucket, ready, training_step)) return {};
  bool wakes = advance_buckets(finished);
  const auto can_only_wait = [this] { return group_.dedicated_cores() && only_waits(); };
  if (wakes && finished.empty() && can_only_wait() && !in_callback) wakes = make_progress(finished);
  // The progress thread should wake up before the other ranks come, not after.
  if (wakes || (can_only_wait() && awaited())) wake_progress_thread();
  call_back(finished);
  return {};
}

Status Plan::run(const void* const* inputs, const size_t* bytes, void* const* outputs,
                 uint32_t training_step) {
  for (size_t i = 0; bytes != nullptr && i < tensors_.size(); ++i) {
    if (bytes[i] == layout_.slots[i].bytes) continue;
    const Status wrong(Code::kInvalidArgument,
                       text("the gradient of ", tensors_[i].describe(), " was submitted as ", bytes[i],
                            " bytes; compile the model again after changing it"));
    abort(wrong.message());  // the other ranks wait for this step
    return wrong;
  }
  std::mutex mutex;
  std::condition_variable all_done;
  size_t under_way = tensors_.size();
  Status first;
  const auto done = [&](const Status& status, const void*) {
    const std::lock_guard lock(mutex);
    if (first.ok()) first = status;
    if (--under_way == 0) all_done.notify_one();
  };
  for (size_t i = tensors_.size(); i-- > 0;) {  // in the order of the buckets
    const Status refused =
        submit(i, inputs[i], tensors_[i].count(), tensors_[i].dtype, done, nullptr, training_step);
    if (refused.ok()) continue;
    abort(refused.message());  // the other tensors of the bucket would wait for ever
    const std::lock_guard lock(mutex);
    if (first.ok()) first = refused;
    under_way -= i + 1;
    break;
  }
  std::unique_lock lock(mutex);
  all_done.wait(lock, [&] { return under_way == 0; });
  TNT_RETURN_IF_ERROR(first);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSlot& slot = layout_.slots[i];
    if (slot.bytes != 0) std::memcpy(outputs[i], reduction_->result() + slot.offset, slot.bytes);
  }
  return {};
}

void Plan::put(const TensorSlot& slot, size_t bucket, const std::byte* data,
               const std::shared_ptr<const void>& owner) {
  const collective::Range range = range_of(slot).intersect(layout_.buckets[bucket].range());
  reduction_->put(bucket, range, data == nullptr ? nullptr : data + (range.begin - slot.offset), owner);
}

bool Plan::count_in(size_t b, int64_t ready, uint32_t training_step) {
  BucketState& bucket = buckets_[b];
  if (timeline_ != nullptr) bucket.times.begin(*timeline_, timeline_id_, b, ready);
  if (bucket.missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  if (timeline_ != nullptr) bucket.times.filled();
  reduction_->start(b, training_step);
  const std::lock_guard lock(mutex_);
  started_buckets_.add(b);
  return true;
}

void Plan::advance() {
  std::vector<Finished> finished;
  if (advance_buckets(finished)) wake_progress_thread();
  call_back(finished);
}

bool Plan::make_progress(std::vector<Finished>& finished) {
  const Deadline deadline = Deadline::after(WaitPolicy::kSpinAfterSubmit);
  while (finished.empty() && !deadline.passed() && reduction_->progress()) {
    (void)advance_buckets(finished);
    if (finished.empty()) std::this_thread::yield();
  }
  return reduction_->has_in_flight();
}

bool Plan::advance_buckets(std::vector<Finished>& finished) {
  if (requests_.fetch_add(1, std::memory_order_acq_rel) != 0) return false;
  uint32_t served = 0;
  bool moving = false;
  do {
    served = requests_.load(std::memory_order_acquire);
    try {
      moving |= advance_due_buckets(finished);
    } catch (const std::exception& error) {
      // ends every step, here as well: the progress thread tells the plan that the job has failed
      (void)group_.fail_in(name_, {Code::kSystem, error.what()});
      wake_progress_thread();
    }
  } while (!requests_.compare_exchange_strong(served, 0, std::memory_order_acq_rel));
  return moving;
}

bool Plan::advance_due_buckets(std::vector<Finished>& finished) {
  due_.clear();
  Status failed;
  {
    const std::lock_guard lock(mutex_);
    failed = failure_;
    for (size_t b = started_buckets_.first(); b != started_buckets_.end(); b = started_buckets_.next(b))
      due_.push_back(b);
  }
  bool moving = false;
  if (!failed.ok()) break_off(failed, finished);
  for (size_t i = 0; i < due_.size() && failed.ok(); ++i) moving |= advance_bucket(due_[i], finished);
  return moving;
}

void Plan::call_back(std::vector<Finished>& finished) {
  const bool before = std::exchange(in_callback, true);
  for (const Finished& each : std::exchange(finished, {})) {
    if (each.done) each.done(each.status, each.result);
  }
  in_callback = before;
}

bool Plan::advance_bucket(size_t b, std::vector<Finished>& finished) {
  using Advanced = collective::BucketReduction::Advanced;
  const int64_t before = timeline_ == nullptr ? 0 : timeline::now();
  Advanced advanced = reduction_->advance(b);
  if (advanced == Advanced::kCallAgain) {
    if (timeline_ != nullptr) buckets_[b].times.summed(before);
    advanced = reduction_->advance(b);
  }
  if (advanced == Advanced::kDone) complete(b, finished);
  return advanced == Advanced::kExchangeBegun;
}

void Plan::complete(size_t index, std::vector<Finished>& finished) {
  BucketState& bucket = buckets_[index];
  const std::vector<size_t>& members = layout_.buckets[index].tensors;
  if (timeline_ != nullptr) bucket.times.end(false);
  {
    const std::lock_guard lock(mutex_);
    started_buckets_.remove(index);
  }
  // the bucket is ready for its next use before a callback can start it
  bucket.generation.fetch_add(1, std::memory_order_relaxed);
  bucket.missing.store(members.size(), std::memory_order_relaxed);
  for (const size_t tensor : members) {
    TensorState& state = states_[tensor];
    if (--state.open_buckets != 0) continue;
    state.open_buckets = bucket_count(layout_.slots[tensor]);
    unsubmitted_.fetch_add(1, std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      finished.push_back({std::move(state.owner),
                          std::exchange(state.done, nullptr),
                          reduction_->result() + layout_.slots[tensor].offset,
                          {}});
    }
    state.busy.store(false, std::memory_order_release);
  }
}

std::optional<Plan::Awaited> Plan::awaited() const {
  const std::lock_guard lock(mutex_);
  for (size_t b = started_buckets_.first(); b != started_buckets_.end(); b = started_buckets_.next(b)) {
    if (const auto found = reduction_->awaited(b)) return Awaited{found->rank, b, found->wait_id};
  }
  return std::nullopt;
}

void Plan::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = status;
  }
  advance();  // only the thread inside may touch submitted data
}

Status Plan::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Plan::break_off(const Status& failed, std::vector<Finished>& finished) {
  for (size_t b = 0; timeline_ != nullptr && b < buckets_.size(); ++b) buckets_[b].times.end(true);
  due_.clear();
  std::unique_lock lock(mutex_);
  for (size_t b = started_buckets_.first(); b != started_buckets_.end(); b = started_buckets_.first()) {
    due_.push_back(b);
    started_buckets_.remove(b);
  }
  lock.unlock();  // what they let go of may call back
  for (const size_t b : due_) reduction_->abort(b);
  lock.lock();
  for (TensorState& state : states_) {
    if (!state.done) continue;
    finished.push_back({std::move(state.owner), std::exchange(state.done, nullptr), nullptr, failed});
  }
}

std::string Plan::describe(const Awaited& awaited) const {
  const uint32_t generation = buckets_[awaited.bucket].generation.load(std::memory_order_relaxed);
  return text("step ", generation, " of ", name_, ", gradient of ",
              tensors_[layout_.buckets[awaited.bucket].tensors.back()].describe());
}

}  // namespace tarantella::engine
