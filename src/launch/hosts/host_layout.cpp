#include "launch/hosts/host_layout.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "base/host.h"
#include "launch/hosts/allocation.h"
#include "launch/hosts/hostfile.h"
#include "launch/hosts/srun.h"
#include "launch/hosts/this_host.h"
#include "launch/system/message.h"
#include "launch/system/program.h"
#include "launch/system/run_program.h"

namespace tarantella::launch {
namespace {

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status(Code::kSystem, "cannot read this file");
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

/// The GPUs of a host that the user has asked for with --gres. Slurm sets no variable for them in the shell of salloc.
std::optional<int> requested_gpus(const Environment& environment) {
  const std::string squeue = program_in(value_of(environment, "PATH").value_or(kDefaultPath), "squeue");
  if (squeue.empty()) return std::nullopt;
  const std::string job = "--jobs=" + stripped_value(environment, "SLURM_JOB_ID");
  return gpus_of_resources(
      run_program({squeue, {squeue, "--noheader", job, "--format=%b"}}, environment, 5s));
}

Result<HostLayout> with_ranks(std::string source, const std::vector<Host>& hosts, const Options& options,
                              int default_count) {
  Result<std::vector<HostAssignment>> assignments = assign_ranks(hosts, options, default_count);
  if (!assignments.ok())
    return Status(Code::kInvalidArgument, text(source, ": ", assignments.status().message()));
  const bool explicit_count = options.ranks || options.ranks_per_node;
  return HostLayout{.source = std::move(source),
                    .assignments = std::move(assignments).value(),
                    .explicit_count = explicit_count};
}

/// The tasks are what the user asked the batch system for, and no limit: more ranks by -n or --n-per-node count, and so
/// do GPUs.
Result<HostLayout> layout_in(Allocation allocation, const Options& options, size_t gpus) {
  std::vector<Host>& hosts = allocation.hosts;
  const int tasks = hosts.size() == 1 ? hosts[0].slots.value_or(1) : 1;
  const int default_count = default_ranks(options, gpus, 1);
  int all = 0;
  for (const Host& host : hosts) all += host.slots.value_or(0);
  const bool counts_gpus = default_ranks(options, gpus, 0) > 0;
  if (allocation.inside_step && !counts_gpus && !options.ranks && !options.ranks_per_node) {
    return Status(Code::kInvalidArgument, text(printable(allocation.job),
                                               ": srun started this process, where Slurm does not report "
                                               "the tasks of all ",
                                               hosts.size(),
                                               " hosts of the job; give the number of ranks "
                                               "(-n or --n-per-node), or start tarantella without srun"));
  }
  if (counts_gpus || options.ranks_per_node || options.ranks.value_or(0) > all) {
    for (Host& host : hosts) host.slots.reset();
  }
  Result<HostLayout> layout = with_ranks(printable(allocation.job), hosts, options, default_count);
  if (layout.ok()) {
    layout.value().tasks = tasks;
    layout.value().batch = allocation.system;
  }
  return layout;
}

}  // namespace

Result<HostLayout> host_layout_for(const Options& options, const Environment& environment,
                                   const runtime::Gpus& gpus) {
  const int default_count = default_ranks(options, gpus.ids.size(), 1);
  if (options.hostfile) {
    const Result<std::vector<Host>> hosts = read_hostfile(*options.hostfile);
    if (!hosts.ok()) return hosts.status();
    Result<HostLayout> layout = with_ranks(text("hostfile '", printable(*options.hostfile), "'"),
                                           hosts.value(), options, default_count);
    if (layout.ok() && hosts.value()[0].slots) layout.value().explicit_count = true;
    return layout;
  }
  Result<std::optional<Allocation>> found = find_allocation(environment, read_file);
  if (!found.ok()) return found.status();
  std::optional<Allocation> allocation = std::move(found).value();
  if (allocation) {
    const bool outside = is_outside_of_slurm_job(environment);
    const bool matters = !options.no_gpu && !options.ranks_per_node;
    // a job on one host is started there, where Slurm sets variables
    if (outside && matters && !allocation->gpus && allocation->hosts.size() > 1)
      allocation->gpus = requested_gpus(environment);
    const auto slurm_gpus = static_cast<size_t>(allocation->gpus.value_or(0));
    return layout_in(*std::move(allocation), options, outside ? slurm_gpus : gpus.ids.size());
  }
  return with_ranks("", {{host_name(), {}}}, options, default_count);
}

bool runs_here(const HostLayout& layout, const Environment& environment) {
  if (layout.assignments.size() > 1) return false;
  const std::string& host = layout.assignments[0].host;
  return layout.source.empty() || host == stripped_value(environment, "SLURMD_NODENAME") ||
         is_this_host(host);
}

std::string describe_hosts(const HostLayout& layout) {
  std::string lines;
  for (const HostAssignment& assignment : layout.assignments) {
    const int last = assignment.first_rank + assignment.ranks - 1;
    lines +=
        text("host ", assignment.host, assignment.ranks == 1 ? ": rank " : ": ranks ", assignment.first_rank);
    if (assignment.ranks > 1) lines += text('-', last);
    lines += '\n';
  }
  return lines;
}

}  // namespace tarantella::launch
