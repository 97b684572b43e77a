#include "collective/shared_memory_reduction.h"

#include <cstring>

#include "base/round.h"
#include "collective/kernels.h"

namespace tarantella::collective {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMost = size_t{1} << 60;  // bytes of all areas; far above any machine, far below an overflow
constexpr size_t kRows = 4;  // rows of words per rank: one for each Flag, polling() and started_in()

/// The number of words in a row: whole cache lines, since only one rank writes to them.
size_t row_words(size_t buckets) { return round_up(buckets, 64 / sizeof(Word)); }

size_t area_bytes(const std::vector<Bucket>& buckets) {
  return buckets.empty() ? 0 : round_up(buckets.back().range().end, kPage);
}

/// The number of rows: kRows per rank, and one per flag group for each Flag.
size_t rows(const NodeGroup& group) {
  const size_t flag_groups = group.flag_groups().count();
  return kRows * static_cast<size_t>(group.size()) + (flag_groups > 1 ? 2 * flag_groups : 0);
}

/// The number of areas: one per rank, and one for the sums.
size_t areas(int ranks) { return static_cast<size_t>(ranks) + 1; }

}  // namespace

uint64_t SharedMemoryReduction::memory_bytes(size_t bytes, int ranks) {
  const size_t count = areas(ranks);
  return bytes > kMost / count ? UINT64_MAX : bytes * count;
}

Result<std::unique_ptr<SharedMemoryReduction>> SharedMemoryReduction::create(NodeGroup& group,
                                                                             std::vector<Bucket> buckets,
                                                                             const std::string& name) {
  const size_t words = rows(group) * row_words(buckets.size());
  auto region = group.map(area_bytes(buckets) * areas(group.size()) + words * sizeof(Word), name);
  if (!region.ok()) return region.status();
  return std::unique_ptr<SharedMemoryReduction>(
      new SharedMemoryReduction(group, std::move(buckets), name, std::move(region).value()));
}

SharedMemoryReduction::SharedMemoryReduction(NodeGroup& group, std::vector<Bucket> buckets, std::string name,
                                             transport::Region region)
    : group_(group.shared_from_this()),
      buckets_(std::move(buckets)),
      name_(std::move(name)),
      region_(std::move(region)),
      states_(buckets_.size()) {}

std::byte* SharedMemoryReduction::area(int rank) const {
  return region_.bytes.data() + static_cast<size_t>(rank) * area_bytes(buckets_);
}

Word* SharedMemoryReduction::row(int rank, size_t index) const {
  auto* words = reinterpret_cast<Word*>(area(group_->size() + 1));
  return words + (kRows * static_cast<size_t>(rank) + index) * row_words(buckets_.size());
}

Range SharedMemoryReduction::slice(const Bucket& bucket) const {
  const auto [begin, end] =
      slice_of(bucket.bytes, static_cast<size_t>(group_->rank()), static_cast<size_t>(group_->size()));
  return {bucket.offset + begin, bucket.offset + end};
}

void SharedMemoryReduction::put(size_t b, Range range, const std::byte* values,
                                const std::shared_ptr<const void>&) {
  if (range.bytes() == 0) return;
  const Bucket& bucket = buckets_[b];
  const auto copy = [&](Range copied) {
    if (copied.bytes() == 0) return;
    std::byte* const to = area(group_->rank()) + copied.begin;
    if (values == nullptr) {
      std::memset(to, 0, copied.bytes());
    } else {
      std::memcpy(to, values + (copied.begin - range.begin), copied.bytes());
    }
  };
  const Range padded{range.begin, round_up(range.end, Bucket::kAlignment)};
  if (padded != bucket.range()) return copy(range);
  states_[b].unpadded_range = range;
  states_[b].values = values;
  if (values == nullptr) return copy(range);
  // this rank reads its own slice from the caller's memory, so only the rest is copied
  const Range own = slice(bucket);
  copy(range.intersect({range.begin, own.begin}));
  copy(range.intersect({own.end, range.end}));
}

void SharedMemoryReduction::start(size_t bucket, uint32_t training_step) {
  started_in(group_->rank(), bucket).store(training_step, std::memory_order_relaxed);
  publish(Flag::kArrived, bucket, states_[bucket].generation.load(std::memory_order_relaxed));
}

int SharedMemoryReduction::first_behind(Flag flag, size_t bucket, uint32_t generation) const {
  const auto behind = [&](int rank) {
    return flag_word(flag, rank, bucket).load(std::memory_order_seq_cst) != generation;
  };
  const FlagGroups& flag_groups = group_->flag_groups();
  if (flag_groups.count() == 1) {
    for (int rank = 0; rank < group_->size(); ++rank) {
      if (behind(rank)) return rank;
    }
    return -1;
  }
  const size_t own = flag_groups.group_of(group_->rank());
  for (size_t i = 0; i < flag_groups.count(); ++i) {
    const size_t flag_group = (own + i) % flag_groups.count();
    Word& all = flag_group_word(flag, flag_group, bucket);
    if (all.load(std::memory_order_acquire) == generation) continue;
    for (const int rank : flag_groups.ranks(flag_group)) {
      if (behind(rank)) return rank;
    }
    all.store(generation, std::memory_order_release);
  }
  return -1;
}

void SharedMemoryReduction::publish(Flag flag, size_t bucket, uint32_t generation) {
  flag_word(flag, group_->rank(), bucket).store(generation, std::memory_order_seq_cst);
  // Nobody can do anything before all are there, and the last one sees that they are.
  if (first_behind(flag, bucket, generation) >= 0) return;
  group_->wake_progress_threads_if([this](int rank) {
    return rank != group_->rank() && polling(rank).load(std::memory_order_seq_cst) == 0;
  });
}

BucketReduction::Advanced SharedMemoryReduction::advance(size_t bucket) {
  State& state = states_[bucket];
  const uint32_t generation = state.generation.load(std::memory_order_relaxed);
  if (state.phase == Phase::kFilling &&
      flag_word(Flag::kArrived, group_->rank(), bucket).load(std::memory_order_acquire) == generation) {
    state.phase = Phase::kAwaitingInputs;
  }
  if (state.phase == Phase::kAwaitingInputs && first_behind(Flag::kArrived, bucket, generation) < 0) {
    if (!check_training_steps(bucket)) return Advanced::kNothing;
    reduce(bucket);
    state.phase = Phase::kAwaitingSums;
    publish(Flag::kReduced, bucket, generation);
    return Advanced::kCallAgain;
  }
  if (state.phase == Phase::kAwaitingSums && first_behind(Flag::kReduced, bucket, generation) < 0) {
    state.phase = Phase::kFilling;
    state.generation.fetch_add(1, std::memory_order_relaxed);
    return Advanced::kDone;
  }
  return Advanced::kNothing;
}

std::optional<BucketReduction::Awaited> SharedMemoryReduction::awaited(size_t bucket) const {
  const Phase phase = states_[bucket].phase;
  if (phase == Phase::kFilling) return std::nullopt;
  const uint32_t generation = states_[bucket].generation.load(std::memory_order_relaxed);
  const Flag missing = phase == Phase::kAwaitingInputs ? Flag::kArrived : Flag::kReduced;
  const int rank = first_behind(missing, bucket, generation);
  if (rank < 0) return std::nullopt;
  return Awaited{rank, 2 * generation + static_cast<uint32_t>(missing)};
}

uint32_t SharedMemoryReduction::training_step(size_t bucket) const {
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (const uint32_t found = started_in(rank, bucket).load(std::memory_order_relaxed); found != 0)
      return found;
  }
  return 0;
}

bool SharedMemoryReduction::check_training_steps(size_t bucket) {
  const uint32_t own = started_in(group_->rank(), bucket).load(std::memory_order_relaxed);
  if (own == 0) return true;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const uint32_t other = started_in(rank, bucket).load(std::memory_order_relaxed);
    if (other == own || other == 0) continue;
    (void)group_->fail(
        different_steps(name_, {group_->job_rank(group_->rank()), own}, {group_->job_rank(rank), other}));
    return false;
  }
  return true;
}

void SharedMemoryReduction::begin_polling() {
  polling(group_->rank()).fetch_add(1, std::memory_order_seq_cst);
}
void SharedMemoryReduction::end_polling() { polling(group_->rank()).fetch_sub(1, std::memory_order_seq_cst); }

void SharedMemoryReduction::reduce(size_t b) {
  const State& state = states_[b];
  Range mine = slice(buckets_[b]);
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < group_->size(); ++rank) inputs.push_back(area(rank) + mine.begin);
  if (state.unpadded_range.bytes() != 0) {
    mine = mine.intersect(state.unpadded_range);
    if (state.values != nullptr)
      inputs[static_cast<size_t>(group_->rank())] = state.values + (mine.begin - state.unpadded_range.begin);
  }
  collective::reduce(buckets_[b].dtype, Reduction::kSum, inputs.data(), inputs.size(),
                     area(group_->size()) + mine.begin, mine.bytes() / size_of(buckets_[b].dtype));
}

}  // namespace tarantella::collective
