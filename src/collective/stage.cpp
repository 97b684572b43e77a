#include "collective/stage.h"

#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "base/round.h"
#include "collective/cuts.h"
#include "collective/kernels.h"

namespace tarantella::collective {
namespace {

constexpr size_t kMostPrefetched = 8192;

}  // namespace

/// What a rank shows in one round; the bytes of the round follow it. If they are few, they are in the first cache line.
struct alignas(64) Stage::Slot {
  static constexpr size_t kInline = 16;

  Word round;
  Header header;
  alignas(16) std::byte little[kInline];
  Name name;

  std::byte* data() { return reinterpret_cast<std::byte*>(this) + sizeof(Slot); }
  static size_t bytes(size_t chunk) { return sizeof(Slot) + chunk; }
};

/// What a rank tells other blocks about its own in one round; the little bytes of the block's ranks follow it.
struct alignas(64) Stage::Relay {
  Word round;
  Header header;

  std::byte* little(size_t place) {
    return reinterpret_cast<std::byte*>(this) + sizeof(Relay) + place * Slot::kInline;
  }
  const std::byte* little(size_t place) const { return const_cast<Relay*>(this)->little(place); }
  static size_t bytes(const Blocks& blocks) {
    return sizeof(Relay) + round_up(blocks.largest() * Slot::kInline, alignof(Relay));
  }
};

Stage::Stage(Group& group, transport::Region region)
    : group_(group),
      chunk_(chunk_bytes(static_cast<size_t>(group.size()))),
      in_blocks_(group.blocks().count() > 1),
      region_(std::move(region)),
      inputs_(static_cast<size_t>(group.size())),
      relays_(group.blocks().count()) {
  static_assert(offsetof(Slot, little) + Slot::kInline == 64);
  static_assert(sizeof(Slot) == 256);
  static_assert(sizeof(Relay) == 64);
}

Result<std::unique_ptr<Stage>> Stage::create(Group& group) {
  const auto size = static_cast<size_t>(group.size());
  const size_t relay = group.blocks().count() > 1 ? Relay::bytes(group.blocks()) : 0;
  const size_t bytes = 2 * size * (Slot::bytes(chunk_bytes(size)) + relay);
  auto region = group.map(bytes, "the stage of the blocking collectives");
  if (!region.ok()) return region.status();
  return std::unique_ptr<Stage>(new Stage(group, std::move(region).value()));
}

Stage::Slot& Stage::slot(int rank, uint32_t round) const {
  const size_t number = 2 * static_cast<size_t>(rank) + round % 2;
  return *reinterpret_cast<Slot*>(region_.bytes.data() + number * Slot::bytes(chunk_));
}

std::byte* Stage::data(int rank, uint32_t round, uint32_t turn, size_t bytes) const {
  return bytes <= Slot::kInline ? slot(rank, round).little : slot(rank, turn).data();
}

Stage::Relay& Stage::relay(int rank, uint32_t round) const {
  const size_t slots = 2 * size() * Slot::bytes(chunk_);
  const size_t number = 2 * static_cast<size_t>(rank) + round % 2;
  return *reinterpret_cast<Relay*>(region_.bytes.data() + slots + number * Relay::bytes(group_.blocks()));
}

const std::byte* Stage::of(size_t rank, size_t bytes) const {
  const auto number = static_cast<int>(rank);
  if (in_blocks_ && bytes <= Slot::kInline) {
    const Blocks& blocks = group_.blocks();
    const Relay* relay = relays_[blocks.block_of(number)];
    if (relay != nullptr) return relay->little(blocks.place_of(number));
  }
  return data(number, round_, turn_, bytes);
}

void Stage::put(const std::byte* from, size_t bytes, Range unread) {
  std::byte* const to = own(bytes);
  put_ = unread.bytes() == 0 ? bytes : 0;
  if (unread.begin != 0) std::memcpy(to, from, unread.begin);
  if (unread.end != bytes) std::memcpy(to + unread.end, from + unread.end, bytes - unread.end);
}

const std::byte* const* Stage::inputs(const std::byte* own, size_t bytes, size_t offset) {
  for (size_t other = 0; other < size(); ++other) inputs_[other] = of(other, bytes) + offset;
  inputs_[static_cast<size_t>(rank())] = own;
  return inputs_.data();
}

void Stage::read(size_t rank, const std::byte* from, Range part, std::byte* to) {
  if (part.bytes() == 0) return;
  std::memcpy(to, from + part.begin, part.bytes());
  if (rank != static_cast<size_t>(this->rank())) bytes_read_ += part.bytes();
}

void Stage::reduce(const Call& call, const std::byte* own, size_t bytes, Range part, std::byte* to) {
  collective::reduce(call.dtype, call.reduction, inputs(own, bytes, part.begin), size(), to,
                     part.bytes() / size_of(call.dtype));
  bytes_read_ += (size() - 1) * part.bytes();
}

template <typename Await>
Result<bool> Stage::meet_in_blocks(const Slot& mine, Await await) {
  const Blocks& blocks = group_.blocks();
  const auto meet_each = [&](const std::vector<int>& ranks) -> Result<bool> {
    for (const int other : ranks) {
      TNT_RETURN_IF_ERROR(await(other));
      if (!(slot(other, round_).header == mine.header)) return false;
    }
    return true;
  };
  const size_t own = blocks.block_of(rank());
  const std::vector<int>& neighbours = blocks.ranks(own);
  Result<bool> near = meet_each(neighbours);
  if (!near.ok() || !near.value()) return near;

  Relay& told = relay(rank(), round_);
  told.header = mine.header;
  for (size_t place = 0; place < neighbours.size(); ++place)
    std::memcpy(told.little(place), slot(neighbours[place], round_).little, Slot::kInline);
  told.round.store(round_, std::memory_order_release);

  for (size_t i = 1; i < blocks.count(); ++i) {
    const size_t block = (own + i) % blocks.count();  // so that not all ranks look at one block first
    const Relay& heard = relay(blocks.counterpart(rank(), block), round_);
    const bool soon = group_.spin(heard.round, round_);
    relays_[block] = soon ? &heard : nullptr;
    const Result<bool> far = soon ? heard.header == mine.header : meet_each(blocks.ranks(block));
    if (!far.ok() || !far.value()) return far;
  }
  return true;
}

void Stage::prefetch_next(size_t bytes) const {
  prefetch_for_write(reinterpret_cast<const std::byte*>(&slot(rank(), round_ + 1)), alignof(Slot));
  prefetch_for_write(slot(rank(), turn_ + 1).data(), bytes);
}

Status Stage::agree(const Call& call) {
  ++turn_;
  return agree_again(call);
}

Status Stage::agree_again(const Call& call) {
  ++round_;
  Slot& mine = slot(rank(), round_);
  mine.header = Header::of(call);
  mine.name.set(call, mine.header);
  TNT_RETURN_IF_ERROR(group_.failure());
  group_.count_call();
  group_.signal(mine.round, round_);
  // A line of few bytes alone does not pay. Many take longer than the wait, and keep other ranks from reading.
  const size_t shown = std::exchange(put_, 0);
  const bool prefetches = shown > Slot::kInline && shown <= kMostPrefetched;
  if (prefetches) prefetch_next(shown);
  // while it waits for the rest; in other calls not every rank shows as much
  const bool overlaps = prefetches && size() > 2 && call.operation == Operation::kAllreduce;
  const auto what = [&mine] { return describe(mine.header, mine.name); };
  const auto await = [&](int other) {
    Status came = group_.await(other, slot(other, round_).round, round_, what);
    if (overlaps) prefetch(slot(other, turn_).data(), shown);
    return came;
  };
  if (in_blocks_) {
    const Result<bool> alike = meet_in_blocks(mine, await);
    if (!alike.ok()) return alike.status();
    if (alike.value()) return {};
  }
  for (int other = 0; other < group_.size(); ++other) TNT_RETURN_IF_ERROR(await(other));
  const Slot& first = slot(0, round_);
  for (int other = 1; other < group_.size(); ++other) {
    const Slot& second = slot(other, round_);
    if (second.header == first.header) continue;
    return fail_for_difference(group_, describe(first.header, first.name), other,
                               describe(second.header, second.name));
  }
  return {};
}

}  // namespace tarantella::collective
