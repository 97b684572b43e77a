#include "launch/dry_run.h"

#include "base/status.h"

namespace tarantella::launch {

std::string ranges(const std::vector<int>& numbers) {
  std::string list;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(numbers[first]);
    if (last > first) list += text('-', numbers[last]);
    first = last + 1;
  }
  return list;
}

std::string describe_placement(const Placement& placement, const Command& command,
                               const std::vector<Additions>& additions) {
  std::string lines;
  for (size_t rank = 0; rank < additions.size(); ++rank) {
    lines += text("rank ", rank, ":\n  cores: ");
    lines += placement.cores.empty() ? "all (not bound)" : ranges(placement.cores[rank].cpus);
    lines += "\n  environment:";
    for (const auto& [name, value] : additions[rank]) lines += text(' ', name, '=', shell_quoted({value}));
    lines += text("\n  command: ", shell_quoted(command.words), '\n');
  }
  return lines;
}

}  // namespace tarantella::launch
