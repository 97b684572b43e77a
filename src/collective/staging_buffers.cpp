#include "collective/staging_buffers.h"

#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "base/round.h"
#include "collective/chunking.h"
#include "collective/kernels.h"

namespace tarantella::collective {
namespace {

constexpr size_t kMaxPrefetched = 8192;

}  // namespace

/// What a rank shows in one round; the bytes of the round follow it. A small payload is inline, in the first cache
/// line.
struct alignas(64) StagingBuffers::Slot {
  static constexpr size_t kInline = 16;

  Word round;
  Header header;
  alignas(16) std::byte inline_bytes[kInline];
  Name name;

  std::byte* data() { return reinterpret_cast<std::byte*>(this) + sizeof(Slot); }
  static size_t bytes(size_t chunk) { return sizeof(Slot) + chunk; }
};

/// What a rank tells other flag groups about its own in one round; the inline bytes of its own one's ranks follow.
struct alignas(64) StagingBuffers::Relay {
  Word round;
  Header header;

  std::byte* inline_bytes(size_t place) {
    return reinterpret_cast<std::byte*>(this) + sizeof(Relay) + place * Slot::kInline;
  }
  const std::byte* inline_bytes(size_t place) const { return const_cast<Relay*>(this)->inline_bytes(place); }
  static size_t bytes(const FlagGroups& flag_groups) {
    return sizeof(Relay) + round_up(flag_groups.largest() * Slot::kInline, alignof(Relay));
  }
};

StagingBuffers::StagingBuffers(NodeGroup& group, transport::Region region)
    : group_(group),
      chunk_(chunk_bytes(static_cast<size_t>(group.size()))),
      in_flag_groups_(group.flag_groups().count() > 1),
      region_(std::move(region)),
      inputs_(static_cast<size_t>(group.size())),
      relays_(group.flag_groups().count()) {
  static_assert(offsetof(Slot, inline_bytes) + Slot::kInline == 64);
  static_assert(sizeof(Slot) == 256);
  static_assert(sizeof(Relay) == 64);
}

Result<std::unique_ptr<StagingBuffers>> StagingBuffers::create(NodeGroup& group) {
  const auto size = static_cast<size_t>(group.size());
  const size_t relay = group.flag_groups().count() > 1 ? Relay::bytes(group.flag_groups()) : 0;
  const size_t bytes = 2 * size * (Slot::bytes(chunk_bytes(size)) + relay);
  auto region = group.map(bytes, "the staging buffers of the blocking collectives");
  if (!region.ok()) return region.status();
  return std::unique_ptr<StagingBuffers>(new StagingBuffers(group, std::move(region).value()));
}

StagingBuffers::Slot& StagingBuffers::slot(int rank, uint32_t round) const {
  const size_t index = 2 * static_cast<size_t>(rank) + round % 2;
  return *reinterpret_cast<Slot*>(region_.bytes.data() + index * Slot::bytes(chunk_));
}

std::byte* StagingBuffers::data(int rank, uint32_t round, uint32_t payload_round, size_t bytes) const {
  return bytes <= Slot::kInline ? slot(rank, round).inline_bytes : slot(rank, payload_round).data();
}

StagingBuffers::Relay& StagingBuffers::relay(int rank, uint32_t round) const {
  const size_t slots = 2 * size() * Slot::bytes(chunk_);
  const size_t index = 2 * static_cast<size_t>(rank) + round % 2;
  return *reinterpret_cast<Relay*>(region_.bytes.data() + slots + index * Relay::bytes(group_.flag_groups()));
}

const std::byte* StagingBuffers::peer_chunk(size_t rank, size_t bytes) const {
  const auto peer = static_cast<int>(rank);
  if (in_flag_groups_ && bytes <= Slot::kInline) {
    const FlagGroups& flag_groups = group_.flag_groups();
    const Relay* relay = relays_[flag_groups.group_of(peer)];
    if (relay != nullptr) return relay->inline_bytes(flag_groups.index_of(peer));
  }
  return data(peer, round_, payload_round_, bytes);
}

void StagingBuffers::write(const std::byte* from, size_t bytes, Range unread) {
  std::byte* const to = own_chunk(bytes);
  written_ = unread.bytes() == 0 ? bytes : 0;
  if (unread.begin != 0) std::memcpy(to, from, unread.begin);
  if (unread.end != bytes) std::memcpy(to + unread.end, from + unread.end, bytes - unread.end);
}

const std::byte* const* StagingBuffers::inputs(const std::byte* own, size_t bytes, size_t offset) {
  for (size_t other = 0; other < size(); ++other) inputs_[other] = peer_chunk(other, bytes) + offset;
  inputs_[static_cast<size_t>(rank())] = own;
  return inputs_.data();
}

void StagingBuffers::read(size_t rank, const std::byte* from, Range part, std::byte* to) {
  if (part.bytes() == 0) return;
  std::memcpy(to, from + part.begin, part.bytes());
  if (rank != static_cast<size_t>(this->rank())) bytes_read_ += part.bytes();
}

void StagingBuffers::reduce(const CallSignature& call, const std::byte* own, size_t bytes, Range part,
                            std::byte* to) {
  collective::reduce(call.dtype, call.reduction, inputs(own, bytes, part.begin), size(), to,
                     part.bytes() / size_of(call.dtype));
  bytes_read_ += (size() - 1) * part.bytes();
}

template <typename Await>
Result<bool> StagingBuffers::exchange_by_flag_groups(const Slot& mine, Await await) {
  const FlagGroups& flag_groups = group_.flag_groups();
  const auto await_each = [&](const std::vector<int>& ranks) -> Result<bool> {
    for (const int other : ranks) {
      TNT_RETURN_IF_ERROR(await(other));
      if (!(slot(other, round_).header == mine.header)) return false;
    }
    return true;
  };
  const size_t own = flag_groups.group_of(rank());
  const std::vector<int>& neighbours = flag_groups.ranks(own);
  Result<bool> own_alike = await_each(neighbours);
  if (!own_alike.ok() || !own_alike.value()) return own_alike;

  Relay& told = relay(rank(), round_);
  told.header = mine.header;
  for (size_t place = 0; place < neighbours.size(); ++place)
    std::memcpy(told.inline_bytes(place), slot(neighbours[place], round_).inline_bytes, Slot::kInline);
  told.round.store(round_, std::memory_order_release);

  for (size_t i = 1; i < flag_groups.count(); ++i) {
    const size_t flag_group = (own + i) % flag_groups.count();  // so that not all read one first
    const Relay& heard = relay(flag_groups.relay_rank(rank(), flag_group), round_);
    const bool soon = group_.spin(heard.round, round_);
    relays_[flag_group] = soon ? &heard : nullptr;
    const Result<bool> alike = soon ? heard.header == mine.header : await_each(flag_groups.ranks(flag_group));
    if (!alike.ok() || !alike.value()) return alike;
  }
  return true;
}

void StagingBuffers::prefetch_next(size_t bytes) const {
  prefetch_for_write(reinterpret_cast<const std::byte*>(&slot(rank(), round_ + 1)), alignof(Slot));
  prefetch_for_write(slot(rank(), payload_round_ + 1).data(), bytes);
}

Status StagingBuffers::exchange(const CallSignature& call) {
  ++payload_round_;
  return sync_round(call);
}

Status StagingBuffers::sync_round(const CallSignature& call) {
  ++round_;
  Slot& mine = slot(rank(), round_);
  mine.header = Header::of(call);
  mine.name.set(call, mine.header);
  TNT_RETURN_IF_ERROR(group_.failure());
  group_.count_round();
  group_.publish(mine.round, round_);
  // To prefetch a line of inline bytes alone does not pay. Many take longer than the wait, and keep other ranks from
  // reading.
  const size_t shown = std::exchange(written_, 0);
  const bool prefetches = shown > Slot::kInline && shown <= kMaxPrefetched;
  if (prefetches) prefetch_next(shown);
  // while it waits for the rest; in other calls not every rank shows as much
  const bool overlaps = prefetches && size() > 2 && call.operation == Operation::kAllreduce;
  const auto what = [&mine] { return describe(mine.header, mine.name); };
  const auto await = [&](int other) {
    Status came = group_.await(other, slot(other, round_).round, round_, what);
    if (overlaps) prefetch(slot(other, payload_round_).data(), shown);
    return came;
  };
  if (in_flag_groups_) {
    const Result<bool> alike = exchange_by_flag_groups(mine, await);
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
