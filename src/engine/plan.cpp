#include "engine/plan.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <thread>
#include <utility>

#include "collective/across/nodes_reduction.h"
#include "collective/node_reduction.h"
#include "engine/compare.h"
#include "engine/finite.h"

namespace tarantella::engine {
namespace {

// A thread that has submitted all of a step moves the bytes itself for so long. A small network's sums come sooner than
// that, and the progress thread need not wake up.
constexpr Duration kShort = 100us;

/// Whether this thread is in a callback. It drives no step that it submits there: their callbacks would nest.
thread_local bool in_callback = false;

collective::Range range_of(const Place& place) { return {place.offset, place.offset + place.bytes}; }

size_t bucket_count(const Place& place) { return place.last_bucket - place.first_bucket + 1; }

/// The bytes of all tensors without padding. Stops adding above what any machine has, so it does not overflow.
size_t bytes_of(const std::vector<TensorSpec>& tensors) {
  size_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    bytes += tensor.count() * size_of(tensor.dtype);
    if (bytes > SIZE_MAX / 4) break;
  }
  return bytes;
}

/// Collective. kOutOfMemory on all ranks if one node has too little memory.
Status check_room(AllRanks& ranks, size_t bytes, const std::string& name) {
  Status here = collective::NodeReduction::check_room(ranks.group(), bytes, name);
  if (ranks.across() == nullptr || here.code() == Code::kInvalidArgument) return here;
  if (!ranks.group().failure().ok()) return here;
  auto fits = ranks.gather(here.ok() ? 1 : 0, name);
  if (!fits.ok()) return fits.status();
  for (size_t rank = 0; rank < ranks.size() && here.ok(); ++rank) {
    if (fits.value()[rank] != 0) continue;
    return {Code::kOutOfMemory, text("too little memory for ", name, " on the machine of rank ", rank,
                                     "; use fewer ranks on it or a smaller model")};
  }
  return here;
}

}  // namespace

Result<std::unique_ptr<Plan>> Plan::create(AllRanks ranks, const std::string& name,
                                           const std::vector<TensorSpec>& tensors, size_t threshold,
                                           Numbers numbers) {
  if (tensors.empty()) return Status(Code::kInvalidArgument, text(name, " has no tensors to reduce"));
  TNT_RETURN_IF_ERROR(compare_tensors(ranks, name, tensors));
  collective::Group& group = ranks.group();
  auto thresholds = ranks.gather(threshold, text("the fusion threshold of ", name));
  if (!thresholds.ok()) return thresholds.status();
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (thresholds.value()[rank] == thresholds.value()[0]) continue;
    return group.fail(
        {Code::kMismatch, text("rank ", ranks.job_rank(rank), " has a fusion threshold of ",
                               thresholds.value()[rank], " bytes, rank ", ranks.job_rank(0), " of ",
                               thresholds.value()[0], "; set the same TNT_FUSION_THRESHOLD on every rank")});
  }
  // before the layout, which allocates memory for each bucket
  TNT_RETURN_IF_ERROR(check_room(ranks, bytes_of(tensors), name));
  using collective::across::NodesReduction;
  const size_t piece =
      ranks.across() == nullptr ? threshold : NodesReduction::piece(*ranks.across(), threshold);
  Layout layout = make_layout(tensors, threshold, piece);
  const std::vector<collective::Bucket> buckets(layout.buckets.begin(), layout.buckets.end());
  auto node = collective::NodeReduction::create(group, buckets, name);
  if (!node.ok()) return node.status();
  std::unique_ptr<collective::BucketReduction> reduction;
  if (ranks.across() == nullptr) {
    reduction = std::move(node).value();
  } else {
    auto all = NodesReduction::create(*ranks.across(), std::move(node).value(), buckets, name, numbers);
    if (!all.ok()) return all.status();
    reduction = std::move(all).value();
  }
  return std::unique_ptr<Plan>(
      new Plan(group, name, tensors, std::move(layout), std::move(reduction), numbers));
}

Plan::Plan(collective::Group& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
           std::unique_ptr<collective::BucketReduction> reduction, Numbers numbers)
    : group_owner_(group.shared_from_this()),
      group_(group),
      name_(std::move(name)),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      reduction_(std::move(reduction)),
      of_caller_(group.is_caller()),
      numbers_(numbers),
      buckets_(layout_.buckets.size()),
      states_(tensors_.size()),
      unsubmitted_(tensors_.size()),
      under_way_(layout_.buckets.size()),
      timeline_(timeline::current().load(std::memory_order_acquire)),
      timeline_number_(timeline_ == nullptr ? 0 : timeline::new_plan()) {
  for (size_t b = 0; b < buckets_.size(); ++b) buckets_[b].missing = layout_.buckets[b].tensors.size();
  for (size_t i = 0; i < tensors_.size(); ++i) states_[i].open_buckets = bucket_count(layout_.places[i]);
  if (timeline_ != nullptr) introduce();
}

void Plan::introduce() {
  timeline_->name(timeline::Kind::kPlanName, timeline_number_, 0, name_);
  for (size_t b = 0; b < buckets_.size(); ++b)
    timeline_->bucket_size(timeline_number_, b, layout_.buckets[b].bytes);
  for (size_t i = 0; i < tensors_.size(); ++i)
    timeline_->name(timeline::Kind::kTensorName, timeline_number_, i, tensors_[i].name);
}

Status Plan::submit(size_t index, const void* data, size_t count, DType dtype, Done done,
                    collective::Kept kept, uint32_t number) {
  if (index >= tensors_.size()) {
    return {Code::kInvalidArgument,
            text(name_, " has ", tensors_.size(), " tensors, there is no number ", index)};
  }
  const TensorSpec& tensor = tensors_[index];
  const Place& place = layout_.places[index];
  if (dtype != tensor.dtype || count * size_of(dtype) != place.bytes) {
    return {Code::kInvalidArgument,
            text("the gradient of ", tensor.describe(), " was submitted as ", count, " x ",
                 tarantella::name_of(dtype), "; compile the model again after changing it")};
  }
  TensorState& state = states_[index];
  TNT_RETURN_IF_ERROR(failure());  // checked first: a failure leaves tensors busy
  if (checks_finite_.load(std::memory_order_relaxed) && data != nullptr && !is_finite(data, count, dtype)) {
    const uint32_t step = buckets_[place.first_bucket].step.load(std::memory_order_relaxed);
    return group_.fail(
        {Code::kSystem,
         text("rank ", group_.job_rank(group_.rank()), ": the gradient of ", tensor.describe(),
              " is not finite in step ", step, " of ", name_,
              " (TNT_CHECK_GRADIENTS): look for a division by 0, a logarithm or root of 0, or a "
              "learning rate that is too high")});
  }
  if (state.busy.exchange(true, std::memory_order_acq_rel)) {
    return {Code::kInvalidArgument, text("the gradient of ", tensor.describe(),
                                         " was submitted twice in one step; is an optimizer applied twice?")};
  }
  const int64_t ready = timeline_ == nullptr ? 0 : timeline_->gradient(timeline_number_, index);
  const auto* bytes = static_cast<const std::byte*>(data);
  // Starts at the tensor's end, which was computed last and is still in the caches.
  const bool looks = place.first_bucket != place.last_bucket;  // and after each of them
  if (looks) reduction_->begin_looking();
  std::vector<Finished> finished;
  for (size_t b = place.last_bucket; b > place.first_bucket; --b) {
    put(place, b, bytes, kept);
    if (count_in(b, ready, number) && take_steps(finished)) ring();
    if (finished.empty()) continue;
    // What they set off may take long, and this call does not look meanwhile. What came unsaid is found here.
    reduction_->end_looking();
    if (take_steps(finished)) ring();
    call_back(finished);
    reduction_->begin_looking();
  }
  if (looks) reduction_->end_looking();
  put(place, place.first_bucket, bytes, kept);
  Status failed;
  {
    // this call reads no data of the caller from here on, so a failure may call back at any time
    const std::lock_guard lock(mutex_);
    failed = failure_;
    if (failed.ok()) state.done = std::move(done);
  }
  if (!failed.ok()) {
    // a thread that entered before the failure may still sum the first buckets
    while (requests_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    return failed;
  }
  unsubmitted_.fetch_sub(1, std::memory_order_relaxed);
  if (!count_in(place.first_bucket, ready, number)) return {};
  bool rings = take_steps(finished);
  const auto can_only_wait = [this] { return group_.own_cores() && only_waits(); };
  if (rings && finished.empty() && can_only_wait() && !in_callback) rings = drive(finished);
  // The progress thread should wake up before the other ranks come, not after.
  if (rings || (can_only_wait() && awaited())) ring();
  call_back(finished);
  return {};
}

Status Plan::run(const void* const* inputs, const size_t* bytes, void* const* outputs, uint32_t number) {
  for (size_t i = 0; bytes != nullptr && i < tensors_.size(); ++i) {
    if (bytes[i] == layout_.places[i].bytes) continue;
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
    const Status refused = submit(i, inputs[i], tensors_[i].count(), tensors_[i].dtype, done,
                                  collective::Kept::kUntilDone, number);
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
    const Place& place = layout_.places[i];
    if (place.bytes != 0) std::memcpy(outputs[i], reduction_->result() + place.offset, place.bytes);
  }
  return {};
}

void Plan::put(const Place& place, size_t bucket, const std::byte* data, collective::Kept kept) {
  const collective::Range part = range_of(place).intersect(layout_.buckets[bucket].range());
  reduction_->put(bucket, part, data == nullptr ? nullptr : data + (part.begin - place.offset), kept);
}

bool Plan::count_in(size_t b, int64_t ready, uint32_t number) {
  BucketState& bucket = buckets_[b];
  if (timeline_ != nullptr) bucket.times.begin(*timeline_, timeline_number_, b, ready);
  if (bucket.missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  if (timeline_ != nullptr) bucket.times.filled();
  reduction_->start(b, number);
  const std::lock_guard lock(mutex_);
  under_way_.add(b);
  return true;
}

void Plan::advance() {
  std::vector<Finished> finished;
  if (take_steps(finished)) ring();
  call_back(finished);
}

bool Plan::drive(std::vector<Finished>& finished) {
  const Deadline deadline = Deadline::after(kShort);
  while (finished.empty() && !deadline.passed() && reduction_->drive()) {
    (void)take_steps(finished);
    if (finished.empty()) std::this_thread::yield();
  }
  return reduction_->moves();
}

bool Plan::take_steps(std::vector<Finished>& finished) {
  if (requests_.fetch_add(1, std::memory_order_acq_rel) != 0) return false;
  uint32_t served = 0;
  bool moving = false;
  do {
    served = requests_.load(std::memory_order_acquire);
    due_.clear();
    Status failed;
    {
      const std::lock_guard lock(mutex_);
      failed = failure_;
      for (size_t b = under_way_.first(); b != under_way_.end(); b = under_way_.next(b)) due_.push_back(b);
    }
    if (!failed.ok()) break_off(failed, finished);
    for (size_t i = 0; i < due_.size() && failed.ok(); ++i) moving |= advance_bucket(due_[i], finished);
  } while (!requests_.compare_exchange_strong(served, 0, std::memory_order_acq_rel));
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
  if (advanced == Advanced::kSummed) {
    if (timeline_ != nullptr) buckets_[b].times.summed(before);
    advanced = reduction_->advance(b);
  }
  if (advanced == Advanced::kDone) complete(b, finished);
  return advanced == Advanced::kMoving;
}

void Plan::complete(size_t index, std::vector<Finished>& finished) {
  BucketState& bucket = buckets_[index];
  const std::vector<size_t>& members = layout_.buckets[index].tensors;
  if (timeline_ != nullptr) bucket.times.end(false);
  {
    const std::lock_guard lock(mutex_);
    under_way_.remove(index);
  }
  // the bucket is ready for the next step before a callback can start it
  bucket.step.fetch_add(1, std::memory_order_relaxed);
  bucket.missing.store(members.size(), std::memory_order_relaxed);
  for (const size_t tensor : members) {
    TensorState& state = states_[tensor];
    if (--state.open_buckets != 0) continue;
    state.open_buckets = bucket_count(layout_.places[tensor]);
    unsubmitted_.fetch_add(1, std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      finished.push_back(
          {std::exchange(state.done, nullptr), reduction_->result() + layout_.places[tensor].offset, {}});
    }
    state.busy.store(false, std::memory_order_release);
  }
}

std::optional<Plan::Awaited> Plan::awaited() const {
  const std::lock_guard lock(mutex_);
  for (size_t b = under_way_.first(); b != under_way_.end(); b = under_way_.next(b)) {
    if (const auto found = reduction_->awaited(b)) return Awaited{found->rank, b, found->wait};
  }
  return std::nullopt;
}

void Plan::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
  }
  advance();  // only the thread inside may touch submitted data
}

Status Plan::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Plan::break_off(const Status& failed, std::vector<Finished>& finished) {
  for (size_t b = 0; timeline_ != nullptr && b < buckets_.size(); ++b) buckets_[b].times.end(true);
  const std::lock_guard lock(mutex_);
  for (TensorState& state : states_) {
    if (state.done) finished.push_back({std::exchange(state.done, nullptr), nullptr, failed});
  }
}

std::string Plan::describe(const Awaited& awaited) const {
  const uint32_t step = buckets_[awaited.bucket].step.load(std::memory_order_relaxed);
  return text("step ", step, " of ", name_, ", gradient of ",
              tensors_[layout_.buckets[awaited.bucket].tensors.back()].describe());
}

}  // namespace tarantella::engine
