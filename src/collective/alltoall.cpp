#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/node_communicator.h"

namespace tarantella::collective {

Status NodeCommunicator::alltoall(const void* input, std::span<const uint64_t> send_counts, void* output,
                                  std::span<const uint64_t> receive_counts, DType dtype,
                                  std::string_view name) {
  StagingBuffers& staging = *staging_;
  const size_t size = staging.size();
  TNT_RETURN_IF_ERROR(check_alltoall(dtype, send_counts, receive_counts, input, output, size));
  if (size * sizeof(uint64_t) > staging.chunk())
    return {Code::kInvalidArgument, text("alltoall between ", size, " ranks: too many")};
  const CallSignature call{Operation::kAlltoall, name, dtype, Reduction::kSum, 0, 0, {}};
  const auto rank = static_cast<size_t>(staging.rank());
  const size_t capacity = staging.chunk() / size_of(dtype);

  const auto announced = std::as_bytes(send_counts);
  staging.write(announced.data(), announced.size());
  TNT_RETURN_IF_ERROR(staging.exchange(call));
  std::vector<std::vector<uint64_t>> counts(size, std::vector<uint64_t>(size));  // of each sender
  size_t rounds = 1;
  for (size_t other = 0; other < size; ++other) {
    std::memcpy(counts[other].data(), staging.peer_chunk(other, announced.size()), announced.size());
    rounds = std::max(rounds, rounds_of_shares(counts[other], capacity));
    if (counts[other][rank] == receive_counts[other]) continue;
    NodeGroup& group = staging.group();
    return group.fail(other_share(name, group.job_rank(staging.rank()), receive_counts[other],
                                  group.job_rank(static_cast<int>(other)), counts[other][rank]));
  }

  // In a staging buffer the shares for all ranks lie one after the other, at the same offsets in every round.
  const auto share = [&](uint64_t count) { return (count + rounds - 1) / rounds * size_of(dtype); };
  std::vector<std::vector<size_t>> offsets(size, {0});  // in each sender's buffer; the last one is the end
  for (size_t other = 0; other < size; ++other) {
    for (const uint64_t count : counts[other]) offsets[other].push_back(offsets[other].back() + share(count));
  }
  const std::vector<Range> sources = ranges_of(send_counts, dtype);
  const std::vector<Range> targets = ranges_of(receive_counts, dtype);
  copy_bytes(at(output, targets[rank].begin), at(input, sources[rank].begin), targets[rank].bytes());
  for (size_t round = 0; round < rounds; ++round) {
    const auto part_of = [&](uint64_t count) {
      return Range{round * share(count), (round + 1) * share(count)}.intersect({0, count * size_of(dtype)});
    };
    for (size_t other = 0; other < size; ++other) {
      if (other == rank) continue;
      const Range part = part_of(send_counts[other]);
      copy_bytes(staging.own_chunk(offsets[rank].back()) + offsets[rank][other],
                 at(input, sources[other].begin + part.begin), part.bytes());
    }
    TNT_RETURN_IF_ERROR(staging.exchange(call));
    for (size_t other = 0; other < size; ++other) {
      if (other == rank) continue;
      const Range part = part_of(receive_counts[other]);
      const size_t offset = offsets[other][rank];
      staging.copy(other, offsets[other].back(), {offset, offset + part.bytes()},
                   at(output, targets[other].begin + part.begin));
    }
  }
  return {};
}

}  // namespace tarantella::collective
