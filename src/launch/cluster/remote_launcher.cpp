#include "launch/cluster/remote_launcher.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "launch/hosts/allocation.h"
#include "launch/system/run_program.h"

namespace tarantella::launch {
namespace {

constexpr std::string_view kMpiPrefixes[] = {
    "PMI", "HYDI_", "MPI_LOCAL", "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_FILE_LOCATION", "PRTE_", "PALS_"};
// Parts of the names of secret variables: HF_TOKEN, WANDB_API_KEY, AWS_SECRET_ACCESS_KEY.
constexpr std::string_view kSecretMarkers[] = {"TOKEN",      "SECRET",     "PASSW",
                                               "PASSPHRASE", "CREDENTIAL", "APIKEY"};
constexpr const char* kRankVariables[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

bool has_mpi_prefix(const std::string& name) {
  if (name.find("_MCA_") != std::string::npos) return false;  // a setting of the user
  return std::any_of(std::begin(kMpiPrefixes), std::end(kMpiPrefixes),
                     [&](auto prefix) { return name.starts_with(prefix); });
}

/// ssh asks nothing, and gives up in time. A user who has set other options decides.
void limit_ssh(const Mpi& mpi, const Environment& environment, EnvironmentOverrides& overrides) {
  const std::string limits = text("-o BatchMode=yes -o ConnectTimeout=", kShellSeconds);
  const char* name = mpi.kind == Mpi::Kind::kIntel   ? "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"
                     : mpi.kind == Mpi::Kind::kMpich ? "HYDRA_LAUNCHER_EXTRA_ARGS"
                                                     : "PRTE_MCA_plm_ssh_args";
  if (!environment.contains(name)) overrides.emplace(name, limits);
}

std::vector<std::string> hydra_arguments(const std::string& hosts, size_t nodes, const std::string& address,
                                         bool in_slurm, const Environment& environment) {
  std::vector<std::string> arguments{
      "-hosts", hosts, "-n", std::to_string(nodes), "-ppn", "1", "-disable-auto-cleanup"};
  const bool user_chose_launcher = environment.contains("HYDRA_LAUNCHER") ||
                                   environment.contains("HYDRA_BOOTSTRAP") ||
                                   environment.contains("I_MPI_HYDRA_BOOTSTRAP");
  if (!user_chose_launcher) arguments.insert(arguments.begin(), {"-launcher", in_slurm ? "slurm" : "ssh"});
  // hydra takes what stands before a colon for the host, so IPv6 addresses are not possible
  const bool usable_address = !address.empty() && address.find(':') == std::string::npos;
  if (usable_address && !in_slurm) arguments.insert(arguments.end(), {"-localhost", address});
  return arguments;
}

std::vector<std::string> open_mpi_arguments(const HostLayout& layout, const Mpi& mpi, bool in_slurm) {
  std::vector<std::string> arguments{
      "-n", std::to_string(layout.assignments.size()), "--map-by", "ppr:1:node", "--bind-to", "none"};
  const bool has_options = !mpi.version.starts_with("4.");
  if (has_options)
    arguments.insert(arguments.end(), {"--runtime-options", "continuous,error-nonzero-status=0"});
  std::string hosts;
  for (const HostAssignment& assignment : layout.assignments)
    hosts += (hosts.empty() ? "" : ",") + assignment.host;
  if (!in_slurm) arguments.insert(arguments.end(), {"--host", hosts});
  arguments.insert(arguments.end(), {"-x", kCoordinatorVariable});
  return arguments;
}

int cpus_of_job(const Environment& environment) {
  const Result<std::vector<int>> cpus = expand_counts(stripped_value(environment, "SLURM_JOB_CPUS_PER_NODE"));
  return cpus.ok() ? *std::min_element(cpus.value().begin(), cpus.value().end()) : 0;
}

std::vector<std::string> srun_arguments(const HostLayout& layout, const std::string& plugin,
                                        const std::string& hosts, const Environment& environment) {
  const std::string nodes = std::to_string(layout.assignments.size());
  std::vector<std::string> arguments{"srun",
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
  if (const int cpus = cpus_of_job(environment); cpus > 0)
    arguments.push_back(text("--cpus-per-task=", cpus));
  return arguments;
}

}  // namespace

RemoteLauncher remote_launcher_for(const HostLayout& layout, const Mpi& mpi, const std::string& launcher,
                                   const std::string& address, const Environment& environment) {
  std::string hosts;
  for (const HostAssignment& assignment : layout.assignments)
    hosts += (hosts.empty() ? "" : ",") + assignment.host;
  const bool in_slurm = layout.batch == BatchSystem::kSlurm;
  const std::string srun =
      in_slurm ? program_in(value_of(environment, "PATH").value_or(kDefaultPath), "srun") : "";
  RemoteLauncher remote;
  const std::string list =
      srun.empty() ? "" : run_program({srun, {srun, "--mpi=list"}}, environment, 5s, true);
  const std::string plugin = plugin_for(mpi, list);
  if (!plugin.empty()) {
    remote.command = {srun, srun_arguments(layout, plugin, hosts, environment)};
    remote.description = text("srun --mpi=", plugin, ", which fits ", mpi.name(), " (", mpi.where, ")");
    remote.is_srun = true;
    if (mpi.kind == Mpi::Kind::kIntel && plugin == "pmi2") remote.environment.emplace("I_MPI_PMI", "pmi2");
  } else {
    remote.command.program = mpi.mpiexec;
    remote.command.argv = mpi.kind == Mpi::Kind::kOpenMpi ? open_mpi_arguments(layout, mpi, in_slurm)
                                                          : hydra_arguments(hosts, layout.assignments.size(),
                                                                            address, in_slurm, environment);
    remote.command.argv.insert(remote.command.argv.begin(), mpi.mpiexec);
    remote.description = text("mpiexec of ", mpi.name(), " (", mpi.where, ")");
    if (in_slurm) remote.description += ", since srun has no plugin that fits it";
    remote.sends_environment = mpi.kind != Mpi::Kind::kOpenMpi;
    limit_ssh(mpi, environment, remote.environment);
    if (mpi.kind == Mpi::Kind::kOpenMpi && ::geteuid() == 0) {
      remote.environment.emplace("OMPI_ALLOW_RUN_AS_ROOT", "1");
      remote.environment.emplace("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
  }
  remote.command.argv.push_back(launcher);
  return remote;
}

Environment environment_for(const RemoteLauncher& remote, const Environment& environment) {
  Environment some = environment;
  if (!remote.sends_environment) return some;
  std::erase_if(some, [](const auto& variable) {
    const std::string& name = variable.first;
    return name.ends_with("_KEY") ||
           std::any_of(std::begin(kSecretMarkers), std::end(kSecretMarkers),
                       [&](auto word) { return name.find(word) != std::string::npos; });
  });
  return some;
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

void remove_mpi_variables(Environment& environment) {
  std::erase_if(environment, [](const auto& variable) { return has_mpi_prefix(variable.first); });
}

bool is_remote_launcher_variable(const std::string& name) {
  return has_mpi_prefix(name) || name.starts_with("SLURM");
}

int host_index_from(const Environment& environment) {
  for (const char* name : kRankVariables) {
    const std::string value = stripped_value(environment, name);
    int node = -1;
    const char* end = value.data() + value.size();
    if (!value.empty() && std::from_chars(value.data(), end, node).ptr == end && node >= 0) return node;
  }
  return -1;
}

}  // namespace tarantella::launch
