#include "launch/ranks/dry_run.h"

#include <cstdint>

#include "base/number.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

// Characters that have no special meaning in any shell.
constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%";

/// The value of `option` in the argument at `position`, or in the next one; 0 unless it is a positive number.
int number_of(std::string_view option, const std::vector<std::string>& arguments, size_t position) {
  std::string_view argument = arguments[position];
  if (!argument.starts_with(option)) return 0;
  argument.remove_prefix(option.size());
  if (argument.empty() && position + 1 < arguments.size()) {
    argument = arguments[position + 1];
  } else if (argument.starts_with('=')) {
    argument.remove_prefix(1);
  } else {
    return 0;
  }
  int number = 0;
  return to_number(argument, number) && number > 0 ? number : 0;
}

}  // namespace

std::string describe_batch(const std::vector<std::string>& arguments, int ranks) {
  for (size_t position = 0; position < arguments.size(); ++position) {
    const std::string on_ranks = text(" on ", ranks, ranks == 1 ? " rank: " : " ranks: ");
    for (const std::string_view option : {"--batch_size_per_replica", "--batch-size-per-replica"}) {
      const int64_t batch = number_of(option, arguments, position);
      if (batch > 0) return text(option, '=', batch, on_ranks, batch * ranks, " rows in all\n");
    }
    for (const std::string_view option : {"--batch_size", "--batch-size"}) {
      const int64_t batch = number_of(option, arguments, position);
      if (batch == 0) continue;
      const int64_t least = batch / ranks, most = (batch + ranks - 1) / ranks;
      return text(option, '=', batch, on_ranks, least, most == least ? std::string() : text(" or ", most),
                  " rows for each if it is the global batch, ", batch * ranks,
                  " rows in all if it is the batch of a rank\n");
    }
  }
  return {};
}

std::string shell_quoted(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char letter : argument) {
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

std::string shell_assignments(const EnvironmentOverrides& variables) {
  std::string assignments;
  for (const auto& [name, value] : variables) assignments += text(name, '=', shell_quoted({value}), ' ');
  return assignments;
}

std::string describe_placement(const Placement& placement, const Command& command,
                               const std::vector<EnvironmentOverrides>& overrides, const Versions& versions,
                               int first) {
  std::string lines = text("tarantella ", TARANTELLA_VERSION, ", program ", command.program);
  if (!versions.python.empty()) lines += text(" (Python ", versions.python, ")");
  lines += '\n';
  for (size_t rank = 0; rank < overrides.size(); ++rank) {
    lines += text("rank ", static_cast<size_t>(first) + rank, ":\n  cores: ");
    lines += placement.cores.empty() ? "all (not bound)" : ranges(placement.cores[rank].cpus);
    if (!placement.gpus.empty()) lines += "\n  GPU: " + placement.gpus[rank];
    if (!placement.numa_nodes.empty())
      lines += "\n  memory of NUMA nodes: " + ranges(placement.numa_nodes[rank]);
    lines += "\n  environment: " + shell_assignments(overrides[rank]);
    lines.pop_back();  // a blank
    lines += text("\n  command: ", shell_quoted(command.argv), '\n');
  }
  return lines;
}

}  // namespace tarantella::launch
