#include "engine/compare.h"

#include <numeric>
#include <sstream>

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

std::string first_difference(const std::string& name, AllRanks& ranks, size_t rank, const std::string& list,
                             const std::string& first) {
  const auto theirs = lines_of(list);
  const auto ours = lines_of(first);
  size_t index = 0;
  while (index < theirs.size() && index < ours.size() && theirs[index] == ours[index]) ++index;
  return text(name, ": rank ", ranks.job_rank(rank), " has ", line_or_nothing(theirs, index), " as tensor ",
              index + 1, " of ", theirs.size(), ", rank ", ranks.job_rank(0), " has ",
              line_or_nothing(ours, index), " (of ", ours.size(), "); build the same model on every rank");
}

}  // namespace

Status compare_tensors(AllRanks& ranks, const std::string& name, const std::vector<TensorSpec>& tensors) {
  std::string own;
  for (const TensorSpec& tensor : tensors) own += tensor.describe() + "\n";
  // first a comparison of calls: a gather would wait for ever for a rank that makes another call
  TNT_RETURN_IF_ERROR(ranks.agree({.operation = collective::Operation::kPlan, .name = name}));
  auto lengths = ranks.gather(own.size(), text("the comparison of ", name));
  if (!lengths.ok()) return lengths.status();
  const std::vector<uint64_t>& counts = lengths.value();
  std::string all(std::accumulate(counts.begin(), counts.end(), size_t{0}), '\0');
  TNT_RETURN_IF_ERROR(ranks.allgather(own.data(), all.data(), counts, DType::kUInt8, name));
  const std::string first = all.substr(0, counts[0]);
  size_t begin = counts[0];
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const std::string list = all.substr(begin, counts[rank]);
    begin += list.size();
    if (list != first)
      return ranks.group().fail({Code::kMismatch, first_difference(name, ranks, rank, list, first)});
  }
  return {};
}

}  // namespace tarantella::engine
