#include "collective/arguments.h"

#include <limits>

namespace tarantella::collective {
namespace {

/// For a collective whose buffers must not be the same one.
Status check_apart(const char* operation, const void* input, const void* output) {
  if (input != output || input == nullptr) return {};
  return {Code::kInvalidArgument, text(operation, " needs an output other than its input")};
}

}  // namespace

Status check(DType dtype, std::span<const uint64_t> counts, size_t times) {
  if (!is_valid(dtype))
    return {Code::kInvalidArgument, text("unknown dtype number ", static_cast<uint32_t>(dtype))};
  uint64_t remaining = std::numeric_limits<ptrdiff_t>::max() / size_of(dtype) / times;
  for (const uint64_t count : counts) {
    if (count > remaining)
      return {Code::kInvalidArgument, text(count, " x ", name_of(dtype), " is too large for any memory")};
    remaining -= count;
  }
  return {};
}

Status check_allreduce(DType dtype, Reduction reduction, const void* input, const void* output,
                       uint64_t count) {
  TNT_RETURN_IF_ERROR(check(dtype, {&count, 1}));
  for (const void* memory : {input, output}) {
    if (reinterpret_cast<uintptr_t>(memory) % size_of(dtype) != 0)
      return {Code::kInvalidArgument,
              text("elements of ", name_of(dtype), " at an address that is not a multiple of ",
                   size_of(dtype), "; copy them")};
  }
  if (!is_valid(reduction))
    return {Code::kInvalidArgument, text("unknown reduction number ", static_cast<uint32_t>(reduction))};
  if (can_reduce(dtype, reduction)) return {};
  return {Code::kInvalidArgument,
          text(name_of(reduction), " is not defined for ", name_of(dtype), "; convert the elements first")};
}

Status check_broadcast(DType dtype, uint64_t count, int root, size_t size) {
  TNT_RETURN_IF_ERROR(check(dtype, {&count, 1}));
  if (root >= 0 && static_cast<size_t>(root) < size) return {};
  return {Code::kInvalidArgument, text("broadcast from rank ", root, ": ranks are 0 to ", size - 1)};
}

Status check_allgather(DType dtype, std::span<const uint64_t> counts, size_t size) {
  if (counts.size() != size)
    return {Code::kInvalidArgument,
            text("allgather needs the counts of ", size, " ranks, not of ", counts.size())};
  return check(dtype, counts);
}

Status check_reduce_scatter(DType dtype, Reduction reduction, const void* input, const void* output,
                            uint64_t count, size_t size) {
  TNT_RETURN_IF_ERROR(check_allreduce(dtype, reduction, input, output, count));
  TNT_RETURN_IF_ERROR(check(dtype, {&count, 1}, size));
  return check_apart("reduce_scatter", input, output);
}

Status check_alltoall(DType dtype, std::span<const uint64_t> send_counts,
                      std::span<const uint64_t> receive_counts, const void* input, const void* output,
                      size_t size) {
  if (send_counts.size() != size || receive_counts.size() != size)
    return {Code::kInvalidArgument, text("alltoall needs counts for ", size, " ranks, not for ",
                                         send_counts.size(), " and ", receive_counts.size())};
  TNT_RETURN_IF_ERROR(check(dtype, send_counts));
  TNT_RETURN_IF_ERROR(check(dtype, receive_counts));
  return check_apart("alltoall", input, output);
}

Status other_share(std::string_view name, int rank, uint64_t expected, int from, uint64_t sent) {
  return {Code::kMismatch, text("alltoall \"", name, "\": rank ", rank, " expects ", expected,
                                " elements from rank ", from, ", which sends ", sent)};
}

}  // namespace tarantella::collective
