#include <algorithm>
#include <numeric>
#include <vector>

#include "collective/arguments.h"
#include "collective/byte_pointers.h"
#include "collective/chunking.h"
#include "collective/internode/cluster_communicator.h"

namespace tarantella::collective::internode {

Status ClusterCommunicator::alltoall(const void* input, std::span<const uint64_t> send_counts, void* output,
                                     std::span<const uint64_t> receive_counts, DType dtype,
                                     std::string_view name) {
  InternodeResources& internode = *internode_;
  const size_t size = internode.size();
  TNT_RETURN_IF_ERROR(check_alltoall(dtype, send_counts, receive_counts, input, output, size));
  TNT_RETURN_IF_ERROR(compare_call({Operation::kAlltoall, name, dtype, Reduction::kSum, 0, 0, {}}));
  std::vector<uint64_t> counts(size * size);  // of each sender
  const std::vector<uint64_t> each(size, size);
  TNT_RETURN_IF_ERROR(allgather(send_counts.data(), counts.data(), each, DType::kInt64, name));
  const auto rank = static_cast<size_t>(internode.rank());
  for (size_t from = 0; from < size; ++from) {
    if (counts[from * size + rank] == receive_counts[from]) continue;
    return internode.staging().group().fail(other_share(name, internode.rank(), receive_counts[from],
                                                        static_cast<int>(from), counts[from * size + rank]));
  }
  const std::vector<Range> targets = ranges_of(receive_counts, dtype);
  std::vector<std::byte> sent;
  for (size_t from = 0; from < size; ++from) {
    const std::span<const uint64_t> theirs(&counts[from * size], size);
    const uint64_t total = std::accumulate(theirs.begin(), theirs.end(), uint64_t{0});
    if (theirs[from] == total) {  // it keeps all of its values
      if (from == rank) copy_bytes(at(output, targets[from].begin), at(input, 0), targets[from].bytes());
      continue;
    }
    sent.resize(total * size_of(dtype));
    if (from == rank) copy_bytes(sent.data(), at(input, 0), sent.size());
    TNT_RETURN_IF_ERROR(broadcast(sent.data(), total, dtype, static_cast<int>(from), name));
    copy_bytes(at(output, targets[from].begin), sent.data() + ranges_of(theirs, dtype)[rank].begin,
               targets[from].bytes());
  }
  return {};
}

}  // namespace tarantella::collective::internode
