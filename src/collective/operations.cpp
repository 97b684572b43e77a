#include "collective/operations.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "collective/kernels.h"
#include "collective/slices.h"

namespace tarantella::collective {
namespace {

// Bytes from which more than two ranks reduce a slice each instead of all everything.
constexpr size_t kSliced = 64 * 1024;

Status check(DType dtype) {
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

/// NULL stays NULL: a rank without data may pass it.
const std::byte* at(const void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset;
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

/// The bytes of each of the parts that follow one another.
std::vector<Range> ranges_of(std::span<const uint64_t> counts, DType dtype) {
  std::vector<Range> ranges;
  size_t end = 0;
  for (const uint64_t count : counts) {
    const size_t begin = end;
    end += count * size_of(dtype);
    ranges.push_back({begin, end});
  }
  return ranges;
}

/// One chunk of a large allreduce between many: each rank reduces its slice, then all take all slices.
Status reduce_slices(Exchange& exchange, const Call& call, const std::byte* input, std::byte* output,
                     size_t bytes) {
  const auto rank = static_cast<size_t>(exchange.rank());
  const Range mine = slice_of(bytes, rank, exchange.size());
  std::byte* result = exchange.own(bytes);
  reduce(call.dtype, call.reduction, exchange.inputs(input + mine.begin, bytes, mine.begin), exchange.size(),
         result + mine.begin, mine.bytes() / size_of(call.dtype));
  TNT_RETURN_IF_ERROR(exchange.advance(call));
  for (size_t other = 0; other < exchange.size(); ++other) {
    const Range slice = slice_of(bytes, other, exchange.size());
    copy_bytes(output + slice.begin, exchange.of(other, bytes) + slice.begin, slice.bytes());
  }
  return {};
}

}  // namespace

Status check(DType dtype, Reduction reduction) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (!is_valid(reduction))
    return {Code::kInvalidArgument, text("there is no reduction number ", static_cast<uint32_t>(reduction))};
  if (can_reduce(dtype, reduction)) return {};
  return {Code::kInvalidArgument,
          text(name_of(dtype), " elements have no ", name_of(reduction), "; convert them first")};
}

Status allreduce(Exchange& exchange, const void* input, void* output, size_t count, DType dtype,
                 Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
  const Call call{Operation::kAllreduce, name, dtype, reduction, 0, count, {}};
  return for_each_chunk(count * size_of(dtype), [&](size_t offset, size_t bytes) -> Status {
    const std::byte* own = at(input, offset);
    exchange.put(own, bytes);
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    if (exchange.size() > 2 && bytes >= kSliced)
      return reduce_slices(exchange, call, own, at(output, offset), bytes);
    reduce(dtype, reduction, exchange.inputs(own, bytes), exchange.size(), at(output, offset),
           bytes / size_of(dtype));
    return {};
  });
}

Status reduce_scatter(Exchange& exchange, const void* input, void* output, size_t count, DType dtype,
                      Reduction reduction, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype, reduction));
  if (input == output && input != nullptr)
    return {Code::kInvalidArgument, "reduce_scatter needs an output beside its input"};
  const Call call{Operation::kReduceScatter, name, dtype, reduction, 0, count, {}};
  const size_t each = count * size_of(dtype);
  const auto rank = static_cast<size_t>(exchange.rank());
  const Range mine{rank * each, (rank + 1) * each};
  return for_each_chunk(exchange.size() * each, [&](size_t offset, size_t bytes) -> Status {
    exchange.put(at(input, offset), bytes);
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    const Range part = mine.meet({offset, offset + bytes});
    if (part.bytes() == 0) return {};
    reduce(dtype, reduction, exchange.inputs(at(input, part.begin), bytes, part.begin - offset),
           exchange.size(), at(output, part.begin - mine.begin), part.bytes() / size_of(dtype));
    return {};
  });
}

Status broadcast(Exchange& exchange, void* data, size_t count, DType dtype, int root, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype));
  const int size = exchange.group().size();
  if (root < 0 || root >= size)
    return {Code::kInvalidArgument, text("broadcast from rank ", root, ": ranks are 0 to ", size - 1)};
  const Call call{Operation::kBroadcast,           name,  dtype, Reduction::kSum,
                  exchange.group().job_rank(root), count, {}};
  return for_each_chunk(count * size_of(dtype), [&](size_t offset, size_t bytes) -> Status {
    if (exchange.rank() == root) exchange.put(at(data, offset), bytes);
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    if (exchange.rank() != root)
      copy_bytes(at(data, offset), exchange.of(static_cast<size_t>(root), bytes), bytes);
    return {};
  });
}

Status allgather(Exchange& exchange, const void* input, void* output, std::span<const uint64_t> counts,
                 DType dtype, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype));
  if (counts.size() != exchange.size())
    return {Code::kInvalidArgument,
            text("allgather needs the counts of ", exchange.size(), " ranks, not of ", counts.size())};
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const Call call{Operation::kAllgather, name, dtype, Reduction::kSum, 0, total, counts};
  const std::vector<Range> ranges = ranges_of(counts, dtype);
  const size_t own = ranges[static_cast<size_t>(exchange.rank())].bytes();
  const size_t longest = *std::max_element(counts.begin(), counts.end()) * size_of(dtype);
  return for_each_chunk(longest, [&](size_t offset, size_t bytes) -> Status {
    const auto part_of = [&](size_t length) { return Range{offset, offset + bytes}.meet({0, length}); };
    exchange.put(at(input, offset), part_of(own).bytes());
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    for (size_t other = 0; other < exchange.size(); ++other) {
      const size_t part = part_of(ranges[other].bytes()).bytes();
      copy_bytes(at(output, ranges[other].begin + offset), exchange.of(other, part), part);
    }
    return {};
  });
}

Status alltoall(Exchange& exchange, const void* input, std::span<const uint64_t> send_counts, void* output,
                std::span<const uint64_t> receive_counts, DType dtype, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype));
  const size_t size = exchange.size();
  if (send_counts.size() != size || receive_counts.size() != size)
    return {Code::kInvalidArgument, text("alltoall needs counts for ", size, " ranks, not for ",
                                         send_counts.size(), " and ", receive_counts.size())};
  if (input == output && input != nullptr)
    return {Code::kInvalidArgument, "alltoall needs an output beside its input"};
  if (size * sizeof(uint64_t) > Exchange::kChunk)
    return {Code::kInvalidArgument, text("alltoall between ", size, " ranks: they are too many")};
  const Call call{Operation::kAlltoall, name, dtype, Reduction::kSum, 0, 0, {}};
  const auto rank = static_cast<size_t>(exchange.rank());

  const auto announced = std::as_bytes(send_counts);
  exchange.put(announced.data(), announced.size());
  TNT_RETURN_IF_ERROR(exchange.advance(call));
  std::vector<Range> wholes;   // by rank: all of its input
  std::vector<Range> sources;  // by rank: the part of its input that is for this rank
  for (size_t other = 0; other < size; ++other) {
    std::vector<uint64_t> counts(size);
    std::memcpy(counts.data(), exchange.of(other, announced.size()), announced.size());
    const std::vector<Range> ranges = ranges_of(counts, dtype);
    sources.push_back(ranges[rank]);
    wholes.push_back({0, ranges.back().end});
    if (counts[rank] == receive_counts[other]) continue;
    Group& group = exchange.group();
    return group.fail(
        {Code::kMismatch, text("alltoall \"", name, "\": rank ", group.job_rank(exchange.rank()), " expects ",
                               receive_counts[other], " elements from rank ",
                               group.job_rank(static_cast<int>(other)), ", which sends ", counts[rank])});
  }

  const std::vector<Range> targets = ranges_of(receive_counts, dtype);
  size_t longest = 0;
  for (const Range& whole : wholes) longest = std::max(longest, whole.end);
  return for_each_chunk(longest, [&](size_t offset, size_t bytes) -> Status {
    const Range window{offset, offset + bytes};
    exchange.put(at(input, offset), window.meet(wholes[rank]).bytes());
    TNT_RETURN_IF_ERROR(exchange.advance(call));
    for (size_t other = 0; other < size; ++other) {
      const Range part = sources[other].meet(window);
      copy_bytes(at(output, targets[other].begin + part.begin - sources[other].begin),
                 exchange.of(other, window.meet(wholes[other]).bytes()) + (part.begin - offset),
                 part.bytes());
    }
    return {};
  });
}

Status barrier(Exchange& exchange, std::string_view name) {
  return exchange.advance({.operation = Operation::kBarrier, .name = name});
}

}  // namespace tarantella::collective
