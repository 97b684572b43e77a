#include "launch/cluster/starter.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "launch/ask.h"
#include "launch/hosts/allocation.h"

namespace tarantella::launch {
namespace {

constexpr std::string_view kOfMpi[] = {
    "PMI", "HYDI_", "MPI_LOCAL", "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_FILE_LOCATION", "PRTE_", "PALS_"};
constexpr const char* kRanks[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

bool begins_with_one(const std::string& name) {
  if (name.find("_MCA_") != std::string::npos) return false;  // a setting of the user
  return std::any_of(std::begin(kOfMpi), std::end(kOfMpi),
                     [&](auto prefix) { return name.starts_with(prefix); });
}

/// ssh asks nothing, and gives up in time. A user who has set other options decides.
void limit_ssh(const Mpi& mpi, const Environment& user, Additions& variables) {
  const std::string limits = text("-o BatchMode=yes -o ConnectTimeout=", kShellSeconds);
  const char* name = mpi.kind == Mpi::Kind::kIntel   ? "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"
                     : mpi.kind == Mpi::Kind::kMpich ? "HYDRA_LAUNCHER_EXTRA_ARGS"
                                                     : "PRTE_MCA_plm_ssh_args";
  if (!user.contains(name)) variables.emplace(name, limits);
}

std::vector<std::string> hydra(const std::string& hosts, size_t nodes, const std::string& address,
                               bool in_slurm, const Environment& user) {
  std::vector<std::string> words{
      "-hosts", hosts, "-n", std::to_string(nodes), "-ppn", "1", "-disable-auto-cleanup"};
  const bool chosen = user.contains("HYDRA_LAUNCHER") || user.contains("HYDRA_BOOTSTRAP") ||
                      user.contains("I_MPI_HYDRA_BOOTSTRAP");
  if (!chosen) words.insert(words.begin(), {"-launcher", in_slurm ? "slurm" : "ssh"});
  // hydra takes what stands before a colon for the host, so that it cannot be told an address of IPv6
  const bool is_told = !address.empty() && address.find(':') == std::string::npos;
  if (is_told && !in_slurm) words.insert(words.end(), {"-localhost", address});
  return words;
}

std::vector<std::string> open_mpi(const Plan& plan, const Mpi& mpi, bool in_slurm) {
  std::vector<std::string> words{
      "-n", std::to_string(plan.shares.size()), "--map-by", "ppr:1:node", "--bind-to", "none"};
  const bool has_options = !mpi.version.starts_with("4.");
  if (has_options) words.insert(words.end(), {"--runtime-options", "continuous,error-nonzero-status=0"});
  std::string hosts;
  for (const HostShare& share : plan.shares) hosts += (hosts.empty() ? "" : ",") + share.host;
  if (!in_slurm) words.insert(words.end(), {"--host", hosts});
  words.insert(words.end(), {"-x", kNode});
  return words;
}

int cpus_of_job(const Environment& user) {
  const Result<std::vector<int>> cpus = expand_counts(stripped(user, "SLURM_JOB_CPUS_PER_NODE"));
  return cpus.ok() ? *std::min_element(cpus.value().begin(), cpus.value().end()) : 0;
}

std::vector<std::string> slurm(const Plan& plan, const std::string& plugin, const std::string& hosts,
                               const Environment& user) {
  const std::string nodes = std::to_string(plan.shares.size());
  std::vector<std::string> words{"srun",
                                 "--nodes=" + nodes,
                                 "--ntasks=" + nodes,
                                 "--ntasks-per-node=1",
                                 "--nodelist=" + hosts,
                                 "--mpi=" + plugin,
                                 "--overlap",
                                 "--export=ALL",
                                 "--input=none",
                                 "--quit-on-interrupt",
                                 "--kill-on-bad-exit=0",
                                 "--wait=0"};
  if (const int cpus = cpus_of_job(user); cpus > 0) words.push_back(text("--cpus-per-task=", cpus));
  return words;
}

}  // namespace

Starter starter_for(const Plan& plan, const Mpi& mpi, const std::string& launcher, const std::string& address,
                    const Environment& user) {
  std::string hosts;
  for (const HostShare& share : plan.shares) hosts += (hosts.empty() ? "" : ",") + share.host;
  const bool in_slurm = plan.batch == BatchSystem::kSlurm;
  const std::string srun = in_slurm ? program_in(value_of(user, "PATH").value_or(kUsualPath), "srun") : "";
  Starter starter;
  const std::string list = srun.empty() ? "" : answer_of({srun, {srun, "--mpi=list"}}, user, 5s, true);
  const std::string plugin = plugin_for(mpi, list);
  if (!plugin.empty()) {
    starter.command = {srun, slurm(plan, plugin, hosts, user)};
    starter.why = text("srun --mpi=", plugin, ", which fits ", mpi.name(), " (", mpi.where, ")");
    starter.is_srun = true;
    if (mpi.kind == Mpi::Kind::kIntel && plugin == "pmi2") starter.variables.emplace("I_MPI_PMI", "pmi2");
  } else {
    starter.command.program = mpi.mpiexec;
    starter.command.words = mpi.kind == Mpi::Kind::kOpenMpi
                                ? open_mpi(plan, mpi, in_slurm)
                                : hydra(hosts, plan.shares.size(), address, in_slurm, user);
    starter.command.words.insert(starter.command.words.begin(), mpi.mpiexec);
    starter.why = text("mpiexec of ", mpi.name(), " (", mpi.where, ")");
    if (in_slurm) starter.why += ", since srun has no plugin that fits it";
    limit_ssh(mpi, user, starter.variables);
    if (mpi.kind == Mpi::Kind::kOpenMpi && ::geteuid() == 0) {
      starter.variables.emplace("OMPI_ALLOW_RUN_AS_ROOT", "1");
      starter.variables.emplace("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
  }
  starter.command.words.push_back(launcher);
  return starter;
}

std::string plugin_for(const Mpi& mpi, const std::string& list) {
  const auto has = [&](const std::string& plugin) {
    for (size_t at = list.find(plugin); at != std::string::npos; at = list.find(plugin, at + 1)) {
      const size_t end = at + plugin.size();
      const auto is_edge = [&](size_t index) {
        return index >= list.size() || std::string_view(" \t\n,").find(list[index]) != std::string_view::npos;
      };
      if ((at == 0 || is_edge(at - 1)) && is_edge(end)) return true;
    }
    return false;
  };
  if (mpi.kind == Mpi::Kind::kOpenMpi) return has("pmix") ? "pmix" : "";
  return has("pmi2") ? "pmi2" : "";
}

void forget_mpi(Environment& environment) {
  std::erase_if(environment, [](const auto& variable) { return begins_with_one(variable.first); });
}

bool is_of_starter(const std::string& name) { return begins_with_one(name) || name.starts_with("SLURM"); }

int node_in(const Environment& environment) {
  for (const char* name : kRanks) {
    const std::string word = stripped(environment, name);
    int node = -1;
    const char* end = word.data() + word.size();
    if (!word.empty() && std::from_chars(word.data(), end, node).ptr == end && node >= 0) return node;
  }
  return -1;
}

}  // namespace tarantella::launch
