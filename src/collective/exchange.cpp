#include "collective/exchange.h"

#include <algorithm>
#include <cstring>

namespace tarantella::collective {
namespace {

constexpr size_t kLabelBytes = 4096;

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
  }
  return "unknown";
}

}  // namespace

/// A Call as it stands in shared memory, before the stage's data.
struct Exchange::Label {
  Operation operation;
  DType dtype;
  uint64_t count;
  int32_t root;
  char name[232];

  static Label of(const Call& call) {
    Label label{call.operation, call.dtype, call.count, call.root, {}};
    const size_t length = std::min(call.name.size(), sizeof(label.name) - 1);
    std::memcpy(label.name, call.name.data(), length);
    return label;
  }

  bool operator==(const Label& other) const {
    return operation == other.operation && dtype == other.dtype && count == other.count &&
           root == other.root && std::strcmp(name, other.name) == 0;
  }

  std::string describe() const {
    std::string said = name_of(operation);
    if (name[0] != '\0') said += text(" \"", name, "\"");
    if (operation == Operation::kBarrier) return said;
    said += text(" of ", count, " x ", tarantella::name_of(dtype));
    if (operation == Operation::kBroadcast) said += text(" from rank ", root);
    return said;
  }
};

Result<std::unique_ptr<Exchange>> Exchange::create(Group& group) {
  const size_t bytes = 2 * (kLabelBytes + kChunk) * static_cast<size_t>(group.size());
  auto region = group.map(bytes, "the stage of the blocking collectives");
  if (!region.ok()) return region.status();
  return std::unique_ptr<Exchange>(new Exchange(group, std::move(region).value()));
}

std::byte* Exchange::place(int rank, uint64_t round) const {
  const size_t index = 2 * static_cast<size_t>(rank) + round % 2;
  return region_.bytes.data() + index * (kLabelBytes + kChunk);
}

std::span<std::byte> Exchange::stage(int rank, uint64_t round) const {
  return {place(rank, round) + kLabelBytes, kChunk};
}

Status Exchange::advance(const Call& call) {
  ++round_;
  const Label own = Label::of(call);
  std::memcpy(place(group_.rank(), round_), &own, sizeof(own));
  TNT_RETURN_IF_ERROR(group_.sync(own.describe()));
  Label first;
  std::memcpy(&first, place(0, round_), sizeof(first));
  for (int rank = 1; rank < group_.size(); ++rank) {
    Label other;
    std::memcpy(&other, place(rank, round_), sizeof(other));
    if (other == first) continue;
    return group_.fail(
        {Code::kMismatch, text("rank ", rank, " called ", other.describe(), " while rank 0 called ",
                               first.describe(), "; call the same on every rank, in one order")});
  }
  return {};
}

}  // namespace tarantella::collective
