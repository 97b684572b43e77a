#include "collective/node_reduction.h"

#include <cstring>

#include "base/round.h"
#include "collective/kernels.h"

namespace tarantella::collective {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMost = size_t{1} << 60;  // bytes of all areas; far above any machine, far below an overflow
constexpr size_t kRows = 4;  // rows of words per rank: one for each Signal, looking() and started_with()

/// The number of words in a row: whole cache lines, since only one rank writes to them.
size_t row_words(size_t buckets) { return round_up(buckets, 64 / sizeof(Word)); }

size_t area_bytes(const std::vector<Bucket>& buckets) {
  return buckets.empty() ? 0 : round_up(buckets.back().range().end, kPage);
}

/// The number of rows: kRows per rank, and one per block for each Signal.
size_t rows(const Group& group) {
  const size_t blocks = group.blocks().count();
  return kRows * static_cast<size_t>(group.size()) + (blocks > 1 ? 2 * blocks : 0);
}

/// The number of areas: one per rank, and one for the sums.
size_t areas(const Group& group) { return static_cast<size_t>(group.size()) + 1; }

}  // namespace

Status NodeReduction::check_room(Group& group, size_t bytes, const std::string& name) {
  if (bytes > kMost / areas(group))
    return {Code::kInvalidArgument, text(name, " has more bytes than any machine; check its shapes")};
  return group.check_room(bytes * areas(group), name);
}

Result<std::unique_ptr<NodeReduction>> NodeReduction::create(Group& group, std::vector<Bucket> buckets,
                                                             const std::string& name) {
  const size_t words = rows(group) * row_words(buckets.size());
  auto region = group.map(area_bytes(buckets) * areas(group) + words * sizeof(Word), name);
  if (!region.ok()) return region.status();
  return std::unique_ptr<NodeReduction>(
      new NodeReduction(group, std::move(buckets), name, std::move(region).value()));
}

NodeReduction::NodeReduction(Group& group, std::vector<Bucket> buckets, std::string name,
                             transport::Region region)
    : group_(group.shared_from_this()),
      buckets_(std::move(buckets)),
      name_(std::move(name)),
      region_(std::move(region)),
      states_(buckets_.size()) {}

std::byte* NodeReduction::area(int rank) const {
  return region_.bytes.data() + static_cast<size_t>(rank) * area_bytes(buckets_);
}

Word* NodeReduction::row(int rank, size_t number) const {
  auto* words = reinterpret_cast<Word*>(area(group_->size() + 1));
  return words + (kRows * static_cast<size_t>(rank) + number) * row_words(buckets_.size());
}

Range NodeReduction::slice(const Bucket& bucket) const {
  const auto [begin, end] =
      slice_of(bucket.bytes, static_cast<size_t>(group_->rank()), static_cast<size_t>(group_->size()));
  return {bucket.offset + begin, bucket.offset + end};
}

void NodeReduction::put(size_t b, Range part, const std::byte* values, Kept) {
  if (part.bytes() == 0) return;
  const Bucket& bucket = buckets_[b];
  const auto copy = [&](Range range) {
    if (range.bytes() == 0) return;
    std::byte* const to = area(group_->rank()) + range.begin;
    if (values == nullptr) {
      std::memset(to, 0, range.bytes());
    } else {
      std::memcpy(to, values + (range.begin - part.begin), range.bytes());
    }
  };
  const Range padded{part.begin, round_up(part.end, Bucket::kAlignment)};
  if (padded != bucket.range()) return copy(part);
  states_[b].whole = part;
  states_[b].values = values;
  if (values == nullptr) return copy(part);
  // this rank reads its own slice from the caller's memory, so only the rest is copied
  const Range own = slice(bucket);
  copy(part.intersect({part.begin, own.begin}));
  copy(part.intersect({own.end, part.end}));
}

void NodeReduction::start(size_t bucket, uint32_t number) {
  started_with(group_->rank(), bucket).store(number, std::memory_order_relaxed);
  signal(Signal::kArrived, bucket, states_[bucket].step.load(std::memory_order_relaxed));
}

int NodeReduction::first_behind(Signal signal, size_t bucket, uint32_t step) const {
  const auto behind = [&](int rank) {
    return signalled(signal, rank, bucket).load(std::memory_order_seq_cst) != step;
  };
  const Blocks& blocks = group_->blocks();
  if (blocks.count() == 1) {
    for (int rank = 0; rank < group_->size(); ++rank) {
      if (behind(rank)) return rank;
    }
    return -1;
  }
  const size_t own = blocks.block_of(group_->rank());
  for (size_t i = 0; i < blocks.count(); ++i) {
    const size_t block = (own + i) % blocks.count();
    Word& all = signalled_all(signal, block, bucket);
    if (all.load(std::memory_order_acquire) == step) continue;
    for (const int rank : blocks.ranks(block)) {
      if (behind(rank)) return rank;
    }
    all.store(step, std::memory_order_release);
  }
  return -1;
}

void NodeReduction::signal(Signal signal, size_t bucket, uint32_t step) {
  signalled(signal, group_->rank(), bucket).store(step, std::memory_order_seq_cst);
  // Nobody can do anything before all are there, and the last one sees that they are.
  if (first_behind(signal, bucket, step) >= 0) return;
  group_->ring_if([this](int rank) {
    return rank != group_->rank() && looking(rank).load(std::memory_order_seq_cst) == 0;
  });
}

BucketReduction::Advanced NodeReduction::advance(size_t bucket) {
  State& state = states_[bucket];
  const uint32_t step = state.step.load(std::memory_order_relaxed);
  if (state.phase == Phase::kFilling &&
      signalled(Signal::kArrived, group_->rank(), bucket).load(std::memory_order_acquire) == step) {
    state.phase = Phase::kArrived;
  }
  if (state.phase == Phase::kArrived && first_behind(Signal::kArrived, bucket, step) < 0) {
    if (!compare_numbers(bucket)) return Advanced::kNothing;
    reduce(bucket);
    state.phase = Phase::kReduced;
    signal(Signal::kReduced, bucket, step);
    return Advanced::kSummed;
  }
  if (state.phase == Phase::kReduced && first_behind(Signal::kReduced, bucket, step) < 0) {
    state.phase = Phase::kFilling;
    state.step.fetch_add(1, std::memory_order_relaxed);
    return Advanced::kDone;
  }
  return Advanced::kNothing;
}

std::optional<BucketReduction::Awaited> NodeReduction::awaited(size_t bucket) const {
  const Phase phase = states_[bucket].phase;
  if (phase == Phase::kFilling) return std::nullopt;
  const uint32_t step = states_[bucket].step.load(std::memory_order_relaxed);
  const Signal missing = phase == Phase::kArrived ? Signal::kArrived : Signal::kReduced;
  const int rank = first_behind(missing, bucket, step);
  if (rank < 0) return std::nullopt;
  return Awaited{rank, 2 * step + static_cast<uint32_t>(missing)};
}

uint32_t NodeReduction::number(size_t bucket) const {
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (const uint32_t found = started_with(rank, bucket).load(std::memory_order_relaxed); found != 0)
      return found;
  }
  return 0;
}

bool NodeReduction::compare_numbers(size_t bucket) {
  const uint32_t own = started_with(group_->rank(), bucket).load(std::memory_order_relaxed);
  if (own == 0) return true;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const uint32_t other = started_with(rank, bucket).load(std::memory_order_relaxed);
    if (other == own || other == 0) continue;
    (void)group_->fail(
        different_steps(name_, {group_->job_rank(group_->rank()), own}, {group_->job_rank(rank), other}));
    return false;
  }
  return true;
}

void NodeReduction::begin_looking() { looking(group_->rank()).fetch_add(1, std::memory_order_seq_cst); }
void NodeReduction::end_looking() { looking(group_->rank()).fetch_sub(1, std::memory_order_seq_cst); }

void NodeReduction::reduce(size_t b) {
  const State& state = states_[b];
  Range mine = slice(buckets_[b]);
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < group_->size(); ++rank) inputs.push_back(area(rank) + mine.begin);
  if (state.whole.bytes() != 0) {
    mine = mine.intersect(state.whole);
    if (state.values != nullptr)
      inputs[static_cast<size_t>(group_->rank())] = state.values + (mine.begin - state.whole.begin);
  }
  collective::reduce(buckets_[b].dtype, Reduction::kSum, inputs.data(), inputs.size(),
                     area(group_->size()) + mine.begin, mine.bytes() / size_of(buckets_[b].dtype));
}

}  // namespace tarantella::collective
