#include "launch/hosts/plan.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "base/host.h"
#include "launch/ask.h"
#include "launch/command.h"
#include "launch/hosts/allocation.h"
#include "launch/hosts/hostfile.h"
#include "launch/hosts/srun.h"
#include "launch/hosts/this_host.h"
#include "launch/placement.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

Result<std::string> content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status(Code::kSystem, "cannot read this file");
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

/// The GPUs of a host that the user has asked for with --gres, of which Slurm tells the shell of salloc nothing.
std::optional<int> requested_gpus(const Environment& user) {
  const std::string squeue = program_in(value_of(user, "PATH").value_or(kUsualPath), "squeue");
  if (squeue.empty()) return std::nullopt;
  const std::string job = "--jobs=" + stripped(user, "SLURM_JOB_ID");
  return gpus_of_resources(answer_of({squeue, {squeue, "--noheader", job, "--format=%b"}}, user, 5s));
}

Result<Plan> with_ranks(std::string source, const std::vector<Host>& hosts, const Options& options,
                        int usual) {
  Result<std::vector<HostShare>> shares = ranks_on_hosts(hosts, options, usual);
  if (!shares.ok()) return Status(Code::kInvalidArgument, text(source, ": ", shares.status().message()));
  const bool chosen = options.ranks || options.ranks_per_node;
  return Plan{.source = std::move(source), .shares = std::move(shares).value(), .chosen = chosen};
}

/// The tasks are what the user asked the batch system for, and no limit: more ranks by -n or --n-per-node count, and so
/// do GPUs.
Result<Plan> plan_in(Allocation allocation, const Options& options, size_t gpus) {
  std::vector<Host>& hosts = allocation.hosts;
  const int tasks = hosts.size() == 1 ? hosts[0].slots.value_or(1) : 1;
  const int usual = usual_ranks(options, gpus, 1);
  int all = 0;
  for (const Host& host : hosts) all += host.slots.value_or(0);
  const bool counts_gpus = usual_ranks(options, gpus, 0) > 0;
  if (allocation.is_in_step && !counts_gpus && !options.ranks && !options.ranks_per_node) {
    return Status(Code::kInvalidArgument, text(printable(allocation.job),
                                               ": srun has started this process, and Slurm does not tell it "
                                               "the tasks of all ",
                                               hosts.size(),
                                               " hosts of the job; say how many ranks they run "
                                               "(-n or --n-per-node), or start tarantella without srun"));
  }
  if (counts_gpus || options.ranks_per_node || options.ranks.value_or(0) > all) {
    for (Host& host : hosts) host.slots.reset();
  }
  Result<Plan> plan = with_ranks(printable(allocation.job), hosts, options, usual);
  if (plan.ok()) {
    plan.value().tasks = tasks;
    plan.value().batch = allocation.system;
  }
  return plan;
}

}  // namespace

Result<Plan> plan_for(const Options& options, const Environment& user, const runtime::Gpus& gpus) {
  const int usual = usual_ranks(options, gpus.ids.size(), 1);
  if (options.hostfile) {
    const Result<std::vector<Host>> hosts = read_hostfile(*options.hostfile);
    if (!hosts.ok()) return hosts.status();
    Result<Plan> plan =
        with_ranks(text("hostfile '", printable(*options.hostfile), "'"), hosts.value(), options, usual);
    if (plan.ok() && hosts.value()[0].slots) plan.value().chosen = true;
    return plan;
  }
  Result<std::optional<Allocation>> found = find_allocation(user, content_of);
  if (!found.ok()) return found.status();
  std::optional<Allocation> allocation = std::move(found).value();
  if (allocation) {
    const bool outside = is_outside_of_slurm_job(user);
    const bool matters = !options.no_gpu && !options.ranks_per_node;
    // a job on one host is started there, where Slurm tells
    if (outside && matters && !allocation->gpus && allocation->hosts.size() > 1)
      allocation->gpus = requested_gpus(user);
    const auto told = static_cast<size_t>(allocation->gpus.value_or(0));
    return plan_in(*std::move(allocation), options, outside ? told : gpus.ids.size());
  }
  return with_ranks("", {{host_name(), {}}}, options, usual);
}

bool runs_here(const Plan& plan, const Environment& user) {
  if (plan.shares.size() > 1) return false;
  const std::string& host = plan.shares[0].host;
  return plan.source.empty() || host == stripped(user, "SLURMD_NODENAME") || is_this_host(host);
}

std::string describe_hosts(const Plan& plan) {
  std::string lines;
  for (const HostShare& share : plan.shares) {
    const int last = share.first + share.ranks - 1;
    lines += text("host ", share.host, share.ranks == 1 ? ": rank " : ": ranks ", share.first);
    if (share.ranks > 1) lines += text('-', last);
    lines += '\n';
  }
  return lines;
}

}  // namespace tarantella::launch
