#include "collective/arguments.h"

namespace tarantella::collective {
namespace {

/// For a collective whose buffers must not be the same one.
Status check_apart(const char* operation, const void* input, const void* output) {
  if (input != output || input == nullptr) return {};
  return {Code::kInvalidArgument, text(operation, " needs an output other than its input")};
}

}  // namespace

Status check(DType dtype) {
  if (is_valid(dtype)) return {};
  return {Code::kInvalidArgument, text("there is no dtype number ", static_cast<uint32_t>(dtype))};
}

Status check(DType dtype, Reduction reduction) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (!is_valid(reduction))
    return {Code::kInvalidArgument, text("there is no reduction number ", static_cast<uint32_t>(reduction))};
  if (can_reduce(dtype, reduction)) return {};
  return {Code::kInvalidArgument,
          text(name_of(dtype), " elements have no ", name_of(reduction), "; convert them first")};
}

Status check_broadcast(DType dtype, int root, size_t size) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (root >= 0 && static_cast<size_t>(root) < size) return {};
  return {Code::kInvalidArgument, text("broadcast from rank ", root, ": ranks are 0 to ", size - 1)};
}

Status check_allgather(DType dtype, std::span<const uint64_t> counts, size_t size) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (counts.size() == size) return {};
  return {Code::kInvalidArgument,
          text("allgather needs the counts of ", size, " ranks, not of ", counts.size())};
}

Status check_reduce_scatter(DType dtype, Reduction reduction, const void* input, const void* output) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
  return check_apart("reduce_scatter", input, output);
}

Status check_alltoall(DType dtype, std::span<const uint64_t> send_counts,
                      std::span<const uint64_t> receive_counts, const void* input, const void* output,
                      size_t size) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (send_counts.size() != size || receive_counts.size() != size)
    return {Code::kInvalidArgument, text("alltoall needs counts for ", size, " ranks, not for ",
                                         send_counts.size(), " and ", receive_counts.size())};
  return check_apart("alltoall", input, output);
}

Status other_share(std::string_view name, int rank, uint64_t expected, int from, uint64_t sent) {
  return {Code::kMismatch, text("alltoall \"", name, "\": rank ", rank, " expects ", expected,
                                " elements from rank ", from, ", which sends ", sent)};
}

}  // namespace tarantella::collective
