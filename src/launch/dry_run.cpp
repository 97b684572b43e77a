#include "launch/dry_run.h"

#include "launch/say.h"

namespace tarantella::launch {
namespace {

// Characters that have no special meaning in any shell.
constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%";

}  // namespace

std::string shell_quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char letter : word) {
      if (letter == '\'') {
        line += "'\\''";
      } else {
        line += letter;
      }
    }
    line += '\'';
  }
  return line;
}

std::string describe_placement(const Placement& placement, const Command& command,
                               const std::vector<Additions>& additions, const Versions& versions, int first) {
  std::string lines = text("tarantella ", TARANTELLA_VERSION, ", program ", command.program);
  if (!versions.python.empty()) lines += text(" (Python ", versions.python, ")");
  lines += '\n';
  for (size_t rank = 0; rank < additions.size(); ++rank) {
    lines += text("rank ", static_cast<size_t>(first) + rank, ":\n  cores: ");
    lines += placement.cores.empty() ? "all (not bound)" : ranges(placement.cores[rank].cpus);
    if (!placement.gpus.empty()) lines += "\n  GPU: " + placement.gpus[rank];
    if (!placement.memory.empty()) lines += "\n  memory of NUMA nodes: " + ranges(placement.memory[rank]);
    lines += "\n  environment:";
    for (const auto& [name, value] : additions[rank]) lines += text(' ', name, '=', shell_quoted({value}));
    lines += text("\n  command: ", shell_quoted(command.words), '\n');
  }
  return lines;
}

}  // namespace tarantella::launch
