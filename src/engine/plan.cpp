#include "engine/plan.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <thread>
#include <utility>

#include "base/round.h"
#include "collective/kernels.h"
#include "engine/compare.h"

namespace tarantella::engine {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMost = size_t{1} << 60;  // bytes of a plan; far above any machine, far below an overflow
constexpr size_t kRows = 3;                // of words, a rank: one for each stage, and one for looking()

/// Words of one row, in whole cache lines: only one rank writes there.
size_t row_words(size_t buckets) { return round_up(buckets, 64 / sizeof(transport::Word)); }

size_t area_bytes(const Layout& layout) { return round_up(layout.bytes, kPage); }

collective::Range range_of(const Place& place) { return {place.offset, place.offset + place.bytes}; }

/// Then a rank sums its slice out of the caller's memory, and never copies it.
bool is_one_tensors(const Bucket& bucket) { return bucket.tensors.size() == 1; }

size_t bucket_count(const Place& place) { return place.last_bucket - place.first_bucket + 1; }

/// Without padding; at most kMost and that of one tensor, which callers have checked.
size_t bytes_of(const std::vector<TensorSpec>& tensors) {
  size_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    bytes += tensor.count() * size_of(tensor.dtype);
    if (bytes > kMost) break;
  }
  return bytes;
}

size_t rows_bytes(const Layout& layout, int size) {
  return kRows * static_cast<size_t>(size) * row_words(layout.buckets.size()) * sizeof(transport::Word);
}

}  // namespace

Result<std::unique_ptr<Plan>> Plan::create(collective::Exchange& exchange, const std::string& name,
                                           const std::vector<TensorSpec>& tensors, size_t threshold) {
  if (tensors.empty()) return Status(Code::kInvalidArgument, text(name, " has no tensors to reduce"));
  TNT_RETURN_IF_ERROR(compare_tensors(exchange, name, tensors));
  collective::Group& group = exchange.group();
  auto thresholds = group.gather(threshold, text("the fusion threshold of ", name));
  if (!thresholds.ok()) return thresholds.status();
  for (int rank = 1; rank < group.size(); ++rank) {
    if (thresholds.value()[static_cast<size_t>(rank)] == thresholds.value()[0]) continue;
    return group.fail({Code::kMismatch,
                       text("rank ", group.job_rank(rank), " has a fusion threshold of ",
                            thresholds.value()[static_cast<size_t>(rank)], " bytes, rank ", group.job_rank(0),
                            " of ", thresholds.value()[0], "; set it alike everywhere")});
  }
  // before the layout, which takes memory of its own for each bucket
  const size_t least = bytes_of(tensors);
  const size_t areas = static_cast<size_t>(group.size()) + 1;
  if (least > kMost / areas)
    return Status(Code::kInvalidArgument, text(name, " has more bytes than any machine; check its shapes"));
  TNT_RETURN_IF_ERROR(group.check_room(least * areas, name));
  Layout layout = make_layout(tensors, threshold);
  const size_t bytes = area_bytes(layout) * areas + rows_bytes(layout, group.size());
  auto region = group.map(bytes, name);
  if (!region.ok()) return region.status();
  return std::unique_ptr<Plan>(new Plan(group, name, tensors, std::move(layout), std::move(region).value()));
}

Plan::Plan(collective::Group& group, std::string name, std::vector<TensorSpec> tensors, Layout layout,
           transport::Region region)
    : group_owner_(group.shared_from_this()),
      group_(group),
      name_(std::move(name)),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      region_(std::move(region)),
      of_caller_(group.is_caller()),
      buckets_(layout_.buckets.size()),
      states_(tensors_.size()),
      unsubmitted_(tensors_.size()) {
  for (size_t b = 0; b < buckets_.size(); ++b) buckets_[b].missing = layout_.buckets[b].tensors.size();
  for (size_t i = 0; i < tensors_.size(); ++i) states_[i].open_buckets = bucket_count(layout_.places[i]);
}

std::byte* Plan::input(int rank) const {
  return region_.bytes.data() + static_cast<size_t>(rank) * area_bytes(layout_);
}

std::byte* Plan::result() const { return input(group_.size()); }

transport::Word* Plan::row(int rank, size_t number) const {
  auto* words = reinterpret_cast<transport::Word*>(input(group_.size() + 1));
  return words + (kRows * static_cast<size_t>(rank) + number) * row_words(buckets_.size());
}

Status Plan::submit(size_t index, const void* data, size_t count, DType dtype, Done done) {
  if (index >= tensors_.size()) {
    return {Code::kInvalidArgument,
            text(name_, " has ", tensors_.size(), " tensors, there is no number ", index)};
  }
  const TensorSpec& tensor = tensors_[index];
  const Place& place = layout_.places[index];
  if (dtype != tensor.dtype || count * size_of(dtype) != place.bytes) {
    return {Code::kInvalidArgument,
            text("the gradient of ", tensor.describe(), " came as ", count, " x ", tarantella::name_of(dtype),
                 "; compile the model again after changing it")};
  }
  TensorState& state = states_[index];
  TNT_RETURN_IF_ERROR(failure());  // which leaves tensors busy
  if (state.busy.exchange(true, std::memory_order_acq_rel)) {
    return {Code::kInvalidArgument, text("the gradient of ", tensor.describe(),
                                         " was handed in twice in one step; is an optimizer applied twice?")};
  }
  trace_.add(Event::kSubmit, index);
  state.data = static_cast<const std::byte*>(data);
  // From its end, which whoever computed it has just written and the caches still have.
  const bool looks = place.first_bucket != place.last_bucket;  // and after each of them
  transport::Word& own_looking = looking(group_.rank());
  if (looks) own_looking.fetch_add(1, std::memory_order_seq_cst);
  std::vector<Finished> finished;
  for (size_t b = place.last_bucket; b > place.first_bucket; --b) {
    copy_in(place, b, state.data);
    if (count_in(b)) take_steps(finished);
    if (finished.empty()) continue;
    // What they set off may take long, and this call does not look meanwhile. What came unsaid is found here.
    own_looking.fetch_sub(1, std::memory_order_seq_cst);
    take_steps(finished);
    call_back(finished);
    own_looking.fetch_add(1, std::memory_order_seq_cst);
  }
  if (looks) own_looking.fetch_sub(1, std::memory_order_seq_cst);
  copy_in(place, place.first_bucket, state.data);
  Status failed;
  {
    // from here on this call reads nothing of the caller's data, so a failure may call back at any time
    const std::lock_guard lock(mutex_);
    failed = failure_;
    if (failed.ok()) state.done = std::move(done);
  }
  if (!failed.ok()) {
    // a thread that came before the failure may still sum the first buckets
    while (requests_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    return failed;
  }
  unsubmitted_.fetch_sub(1, std::memory_order_relaxed);
  if (!count_in(place.first_bucket)) return {};
  advance();
  // This rank has nothing to do but to wait: its progress thread wakes up before the others come, not after.
  if (group_.own_cores() && all_submitted() && awaited()) group_.ring(group_.rank());
  return {};
}

Status Plan::run(const void* const* inputs, const size_t* bytes, void* const* outputs) {
  for (size_t i = 0; bytes != nullptr && i < tensors_.size(); ++i) {
    if (bytes[i] == layout_.places[i].bytes) continue;
    const Status wrong(Code::kInvalidArgument,
                       text("the gradient of ", tensors_[i].describe(), " came as ", bytes[i],
                            " bytes; compile the model again after changing it"));
    abort(wrong.message());  // the other ranks wait for it
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
    const Status refused = submit(i, inputs[i], tensors_[i].count(), tensors_[i].dtype, done);
    if (refused.ok()) continue;
    abort(refused.message());  // the others of its bucket would wait for ever
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
    if (place.bytes != 0) std::memcpy(outputs[i], result() + place.offset, place.bytes);
  }
  return {};
}

collective::Range Plan::slice(const Bucket& bucket) const {
  const auto [begin, end] = collective::slice_of(bucket.bytes, static_cast<size_t>(group_.rank()),
                                                 static_cast<size_t>(group_.size()));
  return {bucket.offset + begin, bucket.offset + end};
}

void Plan::copy_in(const Place& place, size_t b, const std::byte* data) {
  const Bucket& bucket = layout_.buckets[b];
  const collective::Range part = range_of(place).meet({bucket.offset, bucket.offset + bucket.bytes});
  const auto copy = [&](collective::Range range) {
    if (range.bytes() == 0) return;
    std::memcpy(input(group_.rank()) + range.begin, data + (range.begin - place.offset), range.bytes());
  };
  if (!is_one_tensors(bucket)) return copy(part);
  const collective::Range own = slice(bucket);
  copy(part.meet({part.begin, own.begin}));
  copy(part.meet({own.end, part.end}));
}

bool Plan::count_in(size_t b) {
  BucketState& bucket = buckets_[b];
  if (bucket.missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  post(Stage::kArrived, b, bucket.step.load(std::memory_order_relaxed));
  return true;
}

int Plan::first_behind(Stage stage, size_t bucket, uint32_t step) const {
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (posted(stage, rank, bucket).load(std::memory_order_seq_cst) != step) return rank;
  }
  return -1;
}

void Plan::post(Stage stage, size_t bucket, uint32_t step) {
  posted(stage, group_.rank(), bucket).store(step, std::memory_order_seq_cst);
  // Nobody can do anything before all are there, and the last one sees that they are.
  if (first_behind(stage, bucket, step) >= 0) return;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const bool looks = looking(rank).load(std::memory_order_seq_cst) != 0;
    if (rank != group_.rank() && !looks) group_.ring(rank);
  }
}

void Plan::advance() {
  std::vector<Finished> finished;
  take_steps(finished);
  call_back(finished);
}

void Plan::take_steps(std::vector<Finished>& finished) {
  if (requests_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  uint32_t served = 0;
  do {
    served = requests_.load(std::memory_order_acquire);
    const Status failed = failure();
    if (!failed.ok()) break_off(failed, finished);
    for (size_t b = 0; b < buckets_.size() && failed.ok(); ++b) advance_bucket(b, finished);
  } while (!requests_.compare_exchange_strong(served, 0, std::memory_order_acq_rel));
}

void Plan::call_back(std::vector<Finished>& finished) {
  for (const Finished& each : std::exchange(finished, {})) {
    if (each.done) each.done(each.status, each.result);
  }
}

void Plan::advance_bucket(size_t b, std::vector<Finished>& finished) {
  BucketState& bucket = buckets_[b];
  const uint32_t step = bucket.step.load(std::memory_order_relaxed);
  if (bucket.phase == Phase::kFilling &&
      posted(Stage::kArrived, group_.rank(), b).load(std::memory_order_acquire) == step) {
    bucket.phase = Phase::kArrived;
  }
  if (bucket.phase == Phase::kArrived && first_behind(Stage::kArrived, b, step) < 0) {
    reduce(b);
    bucket.phase = Phase::kReduced;
    post(Stage::kReduced, b, step);
  }
  if (bucket.phase == Phase::kReduced && first_behind(Stage::kReduced, b, step) < 0) complete(b, finished);
}

void Plan::reduce(size_t index) {
  const Bucket& bucket = layout_.buckets[index];
  collective::Range mine = slice(bucket);
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < group_.size(); ++rank) inputs.push_back(input(rank) + mine.begin);
  if (is_one_tensors(bucket)) {
    const size_t tensor = bucket.tensors[0];
    const Place& place = layout_.places[tensor];
    mine = mine.meet(range_of(place));
    inputs[static_cast<size_t>(group_.rank())] = states_[tensor].data + (mine.begin - place.offset);
  }
  collective::reduce(bucket.dtype, Reduction::kSum, inputs.data(), inputs.size(), result() + mine.begin,
                     mine.bytes() / size_of(bucket.dtype));
  trace_.add(Event::kReduced, index);
}

void Plan::complete(size_t index, std::vector<Finished>& finished) {
  BucketState& bucket = buckets_[index];
  const std::vector<size_t>& members = layout_.buckets[index].tensors;
  trace_.add(Event::kDone, index);
  // all is ready for the next step before a callback can set it off
  bucket.phase = Phase::kFilling;
  bucket.step.fetch_add(1, std::memory_order_relaxed);
  bucket.missing.store(members.size(), std::memory_order_relaxed);
  for (const size_t tensor : members) {
    TensorState& state = states_[tensor];
    if (--state.open_buckets != 0) continue;
    state.open_buckets = bucket_count(layout_.places[tensor]);
    unsubmitted_.fetch_add(1, std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      finished.push_back({std::exchange(state.done, nullptr), result() + layout_.places[tensor].offset, {}});
    }
    state.busy.store(false, std::memory_order_release);
  }
}

std::optional<Plan::Awaited> Plan::awaited() const {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const BucketState& bucket = buckets_[b];
    const Phase phase = bucket.phase;
    if (phase == Phase::kFilling) continue;
    const uint32_t step = bucket.step.load(std::memory_order_relaxed);
    const bool arrived = phase == Phase::kReduced;
    const int rank = first_behind(arrived ? Stage::kReduced : Stage::kArrived, b, step);
    if (rank >= 0) return Awaited{rank, b, step, arrived};
  }
  return std::nullopt;
}

void Plan::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
  }
  advance();  // its thread is the one that may read what callers handed in
}

Status Plan::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Plan::break_off(const Status& failed, std::vector<Finished>& finished) {
  const std::lock_guard lock(mutex_);
  for (TensorState& state : states_) {
    if (state.done) finished.push_back({std::exchange(state.done, nullptr), nullptr, failed});
  }
}

std::string Plan::describe(const Awaited& awaited) const {
  return text("step ", awaited.step, " of ", name_, ", gradient of ",
              tensors_[layout_.buckets[awaited.bucket].tensors.back()].describe());
}

}  // namespace tarantella::engine
