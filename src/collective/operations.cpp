#include "collective/operations.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/kernels.h"

namespace tarantella::collective {
namespace {

Status check_dtype(DType dtype) {
  if (is_valid(dtype)) return {};
  return {Code::kInvalidArgument, text("there is no dtype number ", static_cast<uint32_t>(dtype))};
}

/// Calls step(offset, bytes) for each chunk; once, with 0 bytes, where there is no data: ranks meet all the same.
template <typename Step>
Status for_each_chunk(size_t bytes, Step step) {
  size_t offset = 0;
  do {
    const size_t part = std::min(bytes - offset, Exchange::kChunk);
    TNT_RETURN_IF_ERROR(step(offset, part));
    offset += part;
  } while (offset < bytes);
  return {};
}

const std::byte* at(const void* data, size_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

Status allreduce(Exchange& exchange, const void* input, void* output, size_t count, DType dtype,
                 const std::string& name) {
  TNT_RETURN_IF_ERROR(check_dtype(dtype));
  const Call call{Operation::kAllreduce, dtype, count, 0, name};
  std::vector<const std::byte*> inputs(static_cast<size_t>(exchange.group().size()));
  return for_each_chunk(count * size_of(dtype), [&](size_t offset, size_t bytes) -> Status {
    copy_bytes(exchange.own().data(), at(input, offset), bytes);
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      inputs[rank] = exchange.of(static_cast<int>(rank)).data();
    sum(dtype, inputs.data(), inputs.size(), at(output, offset), bytes / size_of(dtype));
    return {};
  });
}

Status broadcast(Exchange& exchange, void* data, size_t count, DType dtype, int root,
                 const std::string& name) {
  TNT_RETURN_IF_ERROR(check_dtype(dtype));
  const Group& group = exchange.group();
  if (root < 0 || root >= group.size()) {
    return {Code::kInvalidArgument,
            text("broadcast from rank ", root, ": ranks are 0 to ", group.size() - 1)};
  }
  const Call call{Operation::kBroadcast, dtype, count, root, name};
  return for_each_chunk(count * size_of(dtype), [&](size_t offset, size_t bytes) -> Status {
    if (group.rank() == root) copy_bytes(exchange.own().data(), at(data, offset), bytes);
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    if (group.rank() != root) copy_bytes(at(data, offset), exchange.of(root).data(), bytes);
    return {};
  });
}

Status allgather(Exchange& exchange, const void* input, void* output, size_t count, DType dtype,
                 const std::string& name) {
  TNT_RETURN_IF_ERROR(check_dtype(dtype));
  const Call call{Operation::kAllgather, dtype, count, 0, name};
  const size_t total = count * size_of(dtype);
  return for_each_chunk(total, [&](size_t offset, size_t bytes) -> Status {
    copy_bytes(exchange.own().data(), at(input, offset), bytes);
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    for (int rank = 0; rank < exchange.group().size(); ++rank) {
      copy_bytes(at(output, static_cast<size_t>(rank) * total + offset), exchange.of(rank).data(), bytes);
    }
    return {};
  });
}

Status barrier(Exchange& exchange, const std::string& name) {
  return exchange.advance({Operation::kBarrier, DType::kFloat32, 0, 0, name});
}

}  // namespace tarantella::collective
