#include "collective/stage.h"

#include <cstring>

#include "collective/cuts.h"

namespace tarantella::collective {

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

Stage::Stage(Group& group, transport::Region region)
    : group_(group),
      chunk_(chunk_bytes(static_cast<size_t>(group.size()))),
      region_(std::move(region)),
      inputs_(static_cast<size_t>(group.size())) {
  static_assert(offsetof(Slot, little) + Slot::kInline == 64);
  static_assert(sizeof(Slot) == 256);
}

Result<std::unique_ptr<Stage>> Stage::create(Group& group) {
  const auto size = static_cast<size_t>(group.size());
  const size_t bytes = 2 * size * Slot::bytes(chunk_bytes(size));
  auto region = group.map(bytes, "the stage of the blocking collectives");
  if (!region.ok()) return region.status();
  return std::unique_ptr<Stage>(new Stage(group, std::move(region).value()));
}

Stage::Slot& Stage::slot(int rank, uint32_t round) const {
  const size_t number = 2 * static_cast<size_t>(rank) + round % 2;
  return *reinterpret_cast<Slot*>(region_.bytes.data() + number * Slot::bytes(chunk_));
}

std::byte* Stage::data(int rank, uint32_t round, size_t bytes) const {
  Slot& found = slot(rank, round);
  return bytes <= Slot::kInline ? found.little : found.data();
}

void Stage::put(const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(own(bytes), from, bytes);
}

const std::byte* const* Stage::inputs(const std::byte* own, size_t bytes, size_t offset) {
  for (size_t other = 0; other < size(); ++other) inputs_[other] = of(other, bytes) + offset;
  inputs_[static_cast<size_t>(rank())] = own;
  return inputs_.data();
}

Status Stage::agree(const Call& call) {
  ++round_;
  Slot& mine = slot(rank(), round_);
  mine.header = Header::of(call);
  mine.name.set(call, mine.header);
  TNT_RETURN_IF_ERROR(group_.failure());
  group_.count_call();
  group_.signal(mine.round, round_);
  const auto what = [&mine] { return describe(mine.header, mine.name); };
  for (int other = 0; other < group_.size(); ++other) {
    TNT_RETURN_IF_ERROR(group_.await(other, slot(other, round_).round, round_, what));
  }
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
