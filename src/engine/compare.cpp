#include "engine/compare.h"

#include <numeric>
#include <sstream>

#include "base/hash.h"

namespace tarantella::engine {
namespace {

std::vector<std::string> lines_of(const std::string& list) {
  std::vector<std::string> lines;
  std::istringstream stream(list);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_or_nothing(const std::vector<std::string>& lines, size_t index) {
  return index < lines.size() ? lines[index] : "nothing";
}

/// What ranks tell one another about their plans: uint64_t words.
struct Summary {
  uint64_t hash;    ///< of the list
  uint64_t length;  ///< of the list
  uint64_t threshold;
  uint64_t step_check;
  uint64_t needed, available;  ///< see Communicator::MemoryNeed
};

/// The bytes of all tensors without padding. Stops adding above what any machine has, so it does not overflow.
size_t bytes_of(const std::vector<TensorSpec>& tensors) {
  size_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    bytes += tensor.count() * size_of(tensor.dtype);
    if (bytes > SIZE_MAX / 4) break;
  }
  return bytes;
}

/// The first difference of the lists of `rank` and of rank 0.
Status other_tensors(const collective::Communicator& communicator, const std::string& name, size_t rank,
                     const std::string& list, const std::string& first) {
  const auto theirs = lines_of(list);
  const auto ours = lines_of(first);
  size_t index = 0;
  while (index < theirs.size() && index < ours.size() && theirs[index] == ours[index]) ++index;
  return {Code::kMismatch,
          text(name, ": rank ", communicator.job_rank(static_cast<int>(rank)), " has ",
               line_or_nothing(theirs, index), " as tensor ", index + 1, " of ", theirs.size(), ", rank ",
               communicator.job_rank(0), " has ", line_or_nothing(ours, index), " (of ", ours.size(),
               "); build the same model on every rank")};
}

}  // namespace

Result<std::vector<std::string>> allgather_texts(collective::Communicator& communicator,
                                                 const std::string& own, const std::vector<uint64_t>& lengths,
                                                 const std::string& name) {
  std::string all(std::accumulate(lengths.begin(), lengths.end(), size_t{0}), '\0');
  TNT_RETURN_IF_ERROR(communicator.allgather(own.data(), all.data(), lengths, DType::kUInt8, name));
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const uint64_t length : lengths) {
    texts.push_back(all.substr(begin, length));
    begin += length;
  }
  return texts;
}

Status compare_plans(collective::Communicator& communicator, const std::string& name,
                     const std::vector<TensorSpec>& tensors, size_t threshold,
                     collective::StepCheck step_check) {
  std::string own;
  for (const TensorSpec& tensor : tensors) own += tensor.describe() + "\n";
  const auto memory = communicator.memory_for(bytes_of(tensors));
  const Summary summary{hash_of(own),  own.size(),      threshold, static_cast<uint64_t>(step_check),
                        memory.needed, memory.available};
  // first a comparison of calls: its error names the plan
  TNT_RETURN_IF_ERROR(communicator.compare_call({.operation = collective::Operation::kPlan, .name = name}));
  std::vector<Summary> all(static_cast<size_t>(communicator.size()));
  const std::vector<uint64_t> words(all.size(), sizeof(Summary) / sizeof(uint64_t));
  TNT_RETURN_IF_ERROR(communicator.allgather(&summary, all.data(), words, DType::kUInt64, name));
  const auto job_rank = [&](size_t rank) { return communicator.job_rank(static_cast<int>(rank)); };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].hash == all[0].hash) continue;
    std::vector<uint64_t> lengths;
    for (const Summary& each : all) lengths.push_back(each.length);
    const auto lists = allgather_texts(communicator, own, lengths, name);
    if (!lists.ok()) return lists.status();
    return communicator.group().fail(
        other_tensors(communicator, name, rank, lists.value()[rank], lists.value()[0]));
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].threshold == all[0].threshold) continue;
    return communicator.group().fail(
        {Code::kMismatch,
         text("rank ", job_rank(rank), " has a fusion threshold of ", all[rank].threshold, " bytes, rank ",
              job_rank(0), " of ", all[0].threshold, "; set the same TNT_FUSION_THRESHOLD on every rank")});
  }
  constexpr uint64_t kMiB = 1024 * 1024;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].step_check != all[0].step_check)
      return {Code::kInvalidArgument, text("the step check of ", name, " on rank ", job_rank(rank),
                                           " differs from that on rank ", job_rank(0))};
    if (all[rank].needed == UINT64_MAX)
      return {Code::kInvalidArgument, text(name, " is too large for any machine; check its shapes")};
    if (all[rank].needed <= all[rank].available) continue;
    return {Code::kOutOfMemory,
            text("too little memory for ", name, ": ", all[rank].needed / kMiB + 1, " MiB are needed and ",
                 all[rank].available / kMiB, " MiB are left on the machine of rank ", job_rank(rank),
                 "; use fewer ranks on it or a smaller model")};
  }
  return {};
}

}  // namespace tarantella::engine
