#include "collective/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"

namespace tarantella::collective {
namespace {

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::kAllreduce:
      return "allreduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllgather:
      return "allgather";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAlltoall:
      return "alltoall";
    case Operation::kSharedAllreduce:
      return "shared allreduce";
    case Operation::kGroup:
      return "group";
    case Operation::kBuffer:
      return "creation of a shared buffer";
    case Operation::kPlan:
      return "plan";
  }
  return "unknown";
}

uint64_t hash_of(const Call& call) {
  uint64_t hash = tarantella::hash_of(call.name);
  for (const uint64_t count : call.counts) hash = mix(hash, count);
  return hash;
}

bool reduces(Operation operation) {
  return operation == Operation::kAllreduce || operation == Operation::kReduceScatter ||
         operation == Operation::kSharedAllreduce;
}

}  // namespace

/// A Call as it stands in shared memory.
struct Exchange::Header {
  Operation operation;
  DType dtype;
  Reduction reduction;
  int32_t root;
  uint64_t count;
  uint64_t hash;  ///< of the name and of the call's further numbers

  bool operator==(const Header&) const = default;

  std::string describe(std::string_view name) const {
    std::string said = name_of(operation);
    if (!name.empty()) said += text(" \"", name, "\"");
    if (operation == Operation::kBarrier || operation == Operation::kPlan) return said;
    if (operation == Operation::kAlltoall) return said + text(" of ", tarantella::name_of(dtype));
    if (operation == Operation::kGroup) return said + text(" of ", count, " ranks");
    said += text(" of ", count, " x ", tarantella::name_of(dtype));
    if (reduces(operation)) said += text(" (", tarantella::name_of(reduction), ")");
    if (operation == Operation::kBroadcast) said += text(" from rank ", root);
    return said;
  }
};

/// What a rank shows in one round; the first cache line is all of it where there is little data.
struct alignas(64) Exchange::Slot {
  static constexpr size_t kInline = 16;

  Word round;
  Header header;
  alignas(16) std::byte little[kInline];
  std::array<char, 176> name;
  uint64_t name_hash;  ///< the header's hash when `name` was written
  alignas(64) std::array<std::byte, kChunk> data;
};

Exchange::Exchange(Group& group, transport::Region region)
    : group_(group), region_(std::move(region)), inputs_(static_cast<size_t>(group.size())) {
  static_assert(offsetof(Slot, little) + Slot::kInline == 64);
  static_assert(offsetof(Slot, data) == 256);
}

Result<std::unique_ptr<Exchange>> Exchange::create(Group& group) {
  const size_t bytes = 2 * sizeof(Slot) * static_cast<size_t>(group.size());
  auto region = group.map(bytes, "the stage of the blocking collectives");
  if (!region.ok()) return region.status();
  return std::unique_ptr<Exchange>(new Exchange(group, std::move(region).value()));
}

Exchange::Slot& Exchange::slot(int rank, uint32_t round) const {
  return reinterpret_cast<Slot*>(region_.bytes.data())[2 * static_cast<size_t>(rank) + round % 2];
}

std::byte* Exchange::stage(int rank, uint32_t round, size_t bytes) const {
  Slot& found = slot(rank, round);
  return bytes <= Slot::kInline ? found.little : found.data.data();
}

void Exchange::put(const std::byte* data, size_t bytes) {
  if (bytes != 0) std::memcpy(own(bytes), data, bytes);
}

const std::byte* const* Exchange::inputs(const std::byte* own, size_t bytes, size_t offset) {
  for (size_t other = 0; other < size(); ++other) inputs_[other] = of(other, bytes) + offset;
  inputs_[static_cast<size_t>(rank())] = own;
  return inputs_.data();
}

Status Exchange::advance(const Call& call) {
  ++round_;
  Slot& mine = slot(rank(), round_);
  mine.header = {call.operation, call.dtype, call.reduction, call.root, call.count, hash_of(call)};
  if (mine.name_hash != mine.header.hash) {
    const size_t length = std::min(call.name.size(), mine.name.size() - 1);
    std::copy_n(call.name.begin(), length, mine.name.begin());
    mine.name[length] = '\0';
    mine.name_hash = mine.header.hash;
  }
  TNT_RETURN_IF_ERROR(group_.failure());
  group_.meet();
  group_.publish(mine.round, round_);
  const auto describe = [&mine] { return mine.header.describe(mine.name.data()); };
  for (int other = 0; other < group_.size(); ++other) {
    TNT_RETURN_IF_ERROR(group_.await(other, slot(other, round_).round, round_, describe));
  }
  const Slot& first = slot(0, round_);
  for (int other = 1; other < group_.size(); ++other) {
    const Slot& second = slot(other, round_);
    if (second.header == first.header) continue;
    const std::string one = first.header.describe(first.name.data());
    const std::string two = second.header.describe(second.name.data());
    return group_.fail({Code::kMismatch, text("rank ", group_.job_rank(other), " called ", two,
                                              " while rank ", group_.job_rank(0), " called ", one,
                                              one == two ? ", with other sizes or ranks" : "",
                                              "; call the same on every rank, in one order")});
  }
  return {};
}

}  // namespace tarantella::collective
