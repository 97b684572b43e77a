#include "launch/hosts/allocation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>

#include "base/number.h"
#include "launch/cli/options.h"
#include "launch/hosts/hostlist.h"
#include "launch/hosts/srun.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

using Read = std::function<Result<std::string>(const std::string&)>;

Status invalid(const std::string& source, const std::string& value, const std::string& message) {
  constexpr size_t kShown = 60;
  const std::string shown = value.size() > kShown ? value.substr(0, kShown) + "…" : value;
  return {Code::kInvalidArgument, text(source, " ('", printable(shown), "'): ", message)};
}

Status column(size_t position, const std::string& message) {
  return {Code::kInvalidArgument, text("column ", position + 1, ": ", message)};
}

/// Reads a number from 1 to `most` at `next`, and moves past it.
bool read_number(std::string_view list, size_t& next, int most, int& number) {
  const auto [end, error] = std::from_chars(list.data() + next, list.data() + list.size(), number);
  if (error != std::errc() || number < 1 || number > most) return false;
  next = static_cast<size_t>(end - list.data());
  return true;
}

std::vector<std::string> split(const std::string& list) {
  std::istringstream in(list);
  return {std::istream_iterator<std::string>(in), {}};
}

Status check_name(const std::string& source, const std::string& word) {
  std::vector<std::string> names;
  const Status status = expand_hostlist(word, 1, names);
  if (!status.ok()) return invalid(source, word, status.message());
  return names == std::vector<std::string>{word} ? Status()
                                                 : invalid(source, word, "this is not the name of one host");
}

/// The hosts in a list with one name per rank.
Result<std::vector<Host>> parse_host_names(const std::string& source, const std::string& list) {
  std::vector<Host> ranks;
  for (std::string& word : split(list)) {
    TNT_RETURN_IF_ERROR(check_name(source, word));
    ranks.push_back({std::move(word), 1});
  }
  if (ranks.empty()) return invalid(source, list, "it names no host");
  return merged(ranks);
}

Result<std::vector<Host>> slurm_hosts(const Environment& environment, Allocation& allocation) {
  bool& slots_are_tasks = allocation.slots_are_tasks;
  int parts = 0;
  if (to_number(stripped_value(environment, "SLURM_HET_SIZE"), parts) && parts > 1) {
    return Status(Code::kInvalidArgument,
                  text("it is heterogeneous, and tarantella sees only one of its ", parts,
                       " components; ask for one component, or unset SLURM_HET_SIZE to use the first one"));
  }
  const std::string list = stripped_value(environment, "SLURM_JOB_NODELIST");
  std::vector<std::string> names;
  if (const Status status = expand_hostlist(list, 1, names); !status.ok()) {
    return invalid("SLURM_JOB_NODELIST", list, status.message());
  }
  std::vector<Host> hosts;
  for (std::string& name : names) hosts.push_back({std::move(name), {}});
  // Without a number of tasks from the user, Slurm may count a task per core.
  slots_are_tasks = environment.contains("SLURM_NTASKS") || environment.contains("SLURM_NTASKS_PER_NODE");
  const std::string requested = hosts.size() == 1 ? stripped_value(environment, kTasksVariable) : "";
  const std::string tasks =
      requested.empty() ? stripped_value(environment, "SLURM_TASKS_PER_NODE") : requested;
  slots_are_tasks = slots_are_tasks && !tasks.empty();
  if (!slots_are_tasks) return hosts;
  const Result<std::vector<int>> counts = expand_counts(tasks);
  if (!counts.ok()) return invalid("SLURM_TASKS_PER_NODE", tasks, counts.status().message());
  if (counts.value().size() != hosts.size() && environment.contains("SLURM_STEP_ID")) {
    allocation.inside_step = true;
    slots_are_tasks = false;
    return hosts;
  }
  if (counts.value().size() != hosts.size()) {
    return invalid("SLURM_TASKS_PER_NODE", tasks,
                   text("it has ", counts.value().size(), " numbers for ", hosts.size(), " hosts"));
  }
  for (size_t index = 0; index < hosts.size(); ++index) hosts[index].slots = counts.value()[index];
  return hosts;
}

/// The number in "4", "a100:4" or "a100:2,v100:1"; 0 if there is none.
int sum_of_kinds(const std::string& list) {
  int all = 0;
  std::istringstream kinds(list);
  for (std::string kind; std::getline(kinds, kind, ',');) {
    int count = 0;
    if (!to_number(std::string_view(kind).substr(kind.rfind(':') + 1), count) || count < 0) return 0;
    all = std::min(kMostRanks, all + std::min(kMostRanks, count));
  }
  return all;
}

/// The GPUs that the job has on each host, from the variables of salloc's shell. Unset if they cannot be read.
std::optional<int> slurm_gpus(const Environment& environment) {
  const int count = sum_of_kinds(stripped_value(environment, "SLURM_GPUS_PER_NODE"));
  return count > 0 ? std::optional(count) : std::nullopt;
}

/// LSF's "host1 4 host2 2".
Result<std::vector<Host>> lsf_pairs(const std::string& list) {
  constexpr char kVariable[] = "LSB_MCPU_HOSTS";
  const std::vector<std::string> words = split(list);
  if (words.empty() || words.size() % 2 != 0)
    return invalid(kVariable, list, "a number must follow each host");
  std::vector<Host> hosts;
  for (size_t index = 0; index < words.size(); index += 2) {
    TNT_RETURN_IF_ERROR(check_name(kVariable, words[index]));
    int slots = 0;
    size_t next = 0;
    if (!read_number(words[index + 1], next, kMostRanks, slots) || next != words[index + 1].size()) {
      return invalid(kVariable, list, text("'", printable(words[index + 1]), "' is not a number of slots"));
    }
    hosts.push_back({words[index], slots});
  }
  return merged(hosts);
}

Result<std::vector<Host>> read_host_names(const std::string& variable, const std::string& file,
                                          const Read& read) {
  const Result<std::string> content = read(file);
  if (!content.ok()) return invalid(variable, file, content.status().message());
  return parse_host_names(variable + " " + file, content.value());
}

Result<std::vector<Host>> lsf_hosts(const Environment& environment, const Read& read) {
  const std::string file = stripped_value(environment, "LSB_DJOB_HOSTFILE");
  if (!file.empty()) return read_host_names("LSB_DJOB_HOSTFILE", file, read);
  const std::string pairs = stripped_value(environment, "LSB_MCPU_HOSTS");
  if (!pairs.empty()) return lsf_pairs(pairs);
  return parse_host_names("LSB_HOSTS", stripped_value(environment, "LSB_HOSTS"));
}

}  // namespace

Result<std::vector<int>> expand_counts(std::string_view list) {
  std::vector<int> counts;
  size_t next = 0;
  do {
    int count = 0, times = 1;
    const size_t start = next;
    if (!read_number(list, next, kMostRanks, count)) {
      return column(start, text("a number from 1 to ", kMostRanks, " belongs here"));
    }
    if (list.substr(next).starts_with("(x")) {
      next += 2;
      const size_t number = next;
      if (!read_number(list, next, static_cast<int>(kMostHosts), times)) {
        return column(number, text("a number from 1 to ", kMostHosts, " belongs here"));
      }
      if (next == list.size() || list[next] != ')') return column(next, "')' belongs here");
      ++next;
    }
    if (counts.size() + static_cast<size_t>(times) > kMostHosts) {
      return column(start, text("more than ", kMostHosts, " hosts"));
    }
    counts.insert(counts.end(), static_cast<size_t>(times), count);
    if (next < list.size() && list[next] != ',') return column(next, "',' belongs here");
  } while (next++ < list.size());
  return counts;
}

std::vector<Host> merged(const std::vector<Host>& parts) {
  std::vector<Host> hosts;
  std::map<std::string, size_t> known;
  for (const Host& part : parts) {
    const auto [entry, is_new] = known.emplace(part.name, hosts.size());
    if (is_new) hosts.push_back({part.name, 0});
    std::optional<int>& slots = hosts[entry->second].slots;
    slots = std::min(kMostRanks, slots.value_or(0) + part.slots.value_or(0));
  }
  return hosts;
}

std::optional<int> gpus_of_resources(const std::string& list) {
  std::string kinds;
  std::string separated = list;
  std::replace(separated.begin(), separated.end(), '\n', ',');
  std::istringstream resources(separated);
  for (std::string each; std::getline(resources, each, ',');) {
    if (each.starts_with("gres:") || each.starts_with("gres/")) each.erase(0, 5);
    if (!each.starts_with("gpu") || (each.size() > 3 && each[3] != ':')) continue;
    const std::string last = each.substr(each.rfind(':') + 1);
    const bool is_number = !last.empty() && std::all_of(last.begin(), last.end(),
                                                        [](unsigned char c) { return std::isdigit(c); });
    kinds += each + (is_number ? "," : ":1,");
  }
  const int count = sum_of_kinds(kinds);
  return count > 0 ? std::optional(count) : std::nullopt;
}

bool slurm_gives_no_gpu(const Environment& environment) {
  const auto is_set = [&](const char* variable) { return environment.contains(variable); };
  constexpr const char* kOnANode[] = {"CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS",
                                      "SLURM_JOB_GPUS"};
  return is_set("SLURM_JOB_ID") && std::none_of(std::begin(kOnANode), std::end(kOnANode), is_set);
}

runtime::Gpus gpus_here(const Environment& environment) {
  runtime::Gpus gpus = runtime::find_gpus("/proc", value_of(environment, "CUDA_VISIBLE_DEVICES"));
  gpus.driver = gpus.driver && !slurm_gives_no_gpu(environment);
  return gpus;
}

Result<std::optional<Allocation>> find_allocation(const Environment& environment, const Read& read) {
  Allocation found;
  Result<std::vector<Host>> hosts = std::vector<Host>();
  const auto id = [&](const char* variable) { return stripped_value(environment, variable); };
  const std::string slurm = id("SLURM_JOB_ID"), pbs = id("PBS_JOBID"), lsf = id("LSB_JOBID");
  found.slots_are_tasks = true;
  if (!slurm.empty() && environment.contains("SLURM_JOB_NODELIST")) {
    found.system = BatchSystem::kSlurm;
    found.job = "Slurm job " + slurm;
    hosts = slurm_hosts(environment, found);
    found.gpus = slurm_gpus(environment);
  } else if (!pbs.empty() && environment.contains("PBS_NODEFILE")) {
    found.system = BatchSystem::kPbs;
    found.job = "PBS job " + pbs;
    hosts = read_host_names("PBS_NODEFILE", id("PBS_NODEFILE"), read);
  } else if (!lsf.empty() && (environment.contains("LSB_DJOB_HOSTFILE") ||
                              environment.contains("LSB_HOSTS") || environment.contains("LSB_MCPU_HOSTS"))) {
    found.system = BatchSystem::kLsf;
    found.job = "LSF job " + lsf;
    hosts = lsf_hosts(environment, read);
  } else {
    return std::optional<Allocation>();
  }
  if (!hosts.ok()) {
    return Status(Code::kInvalidArgument,
                  printable(text("cannot read the hosts of ", found.job, ": ", hosts.status().message(),
                                 "; --hostfile names them instead")));
  }
  found.hosts = std::move(hosts).value();
  return std::optional(std::move(found));
}

}  // namespace tarantella::launch
