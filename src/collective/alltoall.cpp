#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/arguments.h"
#include "collective/chunks.h"
#include "collective/operations.h"

namespace tarantella::collective {

Status alltoall(Stage& stage, const void* input, std::span<const uint64_t> send_counts, void* output,
                std::span<const uint64_t> receive_counts, DType dtype, std::string_view name) {
  TNT_RETURN_IF_ERROR(check(dtype));
  const size_t size = stage.size();
  if (send_counts.size() != size || receive_counts.size() != size)
    return {Code::kInvalidArgument, text("alltoall needs counts for ", size, " ranks, not for ",
                                         send_counts.size(), " and ", receive_counts.size())};
  if (input == output && input != nullptr)
    return {Code::kInvalidArgument, "alltoall needs an output other than its input"};
  if (size * sizeof(uint64_t) > stage.chunk())
    return {Code::kInvalidArgument, text("alltoall between ", size, " ranks: too many")};
  const Call call{Operation::kAlltoall, name, dtype, Reduction::kSum, 0, 0, {}};
  const auto rank = static_cast<size_t>(stage.rank());

  const auto announced = std::as_bytes(send_counts);
  stage.put(announced.data(), announced.size());
  TNT_RETURN_IF_ERROR(stage.agree(call));
  std::vector<Range> wholes;   // per rank: all of its input
  std::vector<Range> sources;  // per rank: the part of its input that is for this rank
  for (size_t other = 0; other < size; ++other) {
    std::vector<uint64_t> counts(size);
    std::memcpy(counts.data(), stage.of(other, announced.size()), announced.size());
    const std::vector<Range> ranges = ranges_of(counts, dtype);
    sources.push_back(ranges[rank]);
    wholes.push_back({0, ranges.back().end});
    if (counts[rank] == receive_counts[other]) continue;
    Group& group = stage.group();
    return group.fail(
        {Code::kMismatch, text("alltoall \"", name, "\": rank ", group.job_rank(stage.rank()), " expects ",
                               receive_counts[other], " elements from rank ",
                               group.job_rank(static_cast<int>(other)), ", which sends ", counts[rank])});
  }

  const std::vector<Range> targets = ranges_of(receive_counts, dtype);
  size_t longest = 0;
  for (const Range& whole : wholes) longest = std::max(longest, whole.end);
  return for_each_chunk(longest, stage.chunk(), [&](size_t offset, size_t bytes) -> Status {
    const Range window{offset, offset + bytes};
    stage.put(at(input, offset), window.intersect(wholes[rank]).bytes());
    TNT_RETURN_IF_ERROR(stage.agree(call));
    for (size_t other = 0; other < size; ++other) {
      const Range part = sources[other].intersect(window);
      copy_bytes(at(output, targets[other].begin + part.begin - sources[other].begin),
                 stage.of(other, window.intersect(wholes[other]).bytes()) + (part.begin - offset),
                 part.bytes());
    }
    return {};
  });
}

}  // namespace tarantella::collective
