#include <algorithm>
#include <numeric>

#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/node_communicator.h"

namespace tarantella::collective {

Status NodeCommunicator::allgather(const void* input, void* output, std::span<const uint64_t> counts,
                                   DType dtype, std::string_view name) {
  StagingBuffers& staging = *staging_;
  TNT_RETURN_IF_ERROR(check_allgather(dtype, counts, staging.size()));
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const CallSignature call{Operation::kAllgather, name, dtype, Reduction::kSum, 0, total, counts};
  const std::vector<Range> ranges = ranges_of(counts, dtype);
  const size_t own = ranges[static_cast<size_t>(staging.rank())].bytes();
  const size_t longest = *std::max_element(counts.begin(), counts.end()) * size_of(dtype);
  return for_each_chunk(longest, staging.chunk(), [&](size_t offset, size_t bytes) -> Status {
    const auto part_of = [&](size_t length) { return Range{offset, offset + bytes}.intersect({0, length}); };
    staging.write(at(input, offset), part_of(own).bytes());
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    for (size_t other = 0; other < staging.size(); ++other) {
      const size_t part = part_of(ranges[other].bytes()).bytes();
      staging.copy(other, part, {0, part}, at(output, ranges[other].begin + offset));
    }
    return {};
  });
}

}  // namespace tarantella::collective
