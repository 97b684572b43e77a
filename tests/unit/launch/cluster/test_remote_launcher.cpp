#include <gtest/gtest.h>

#include <algorithm>

#include "launch/cluster/remote_launcher.h"
#include "launch/ranks/dry_run.h"

namespace tarantella::launch {
namespace {

const HostLayout kPlan{.source = "hostfile 'hosts'", .assignments = {{"a", 0, 2}, {"b", 2, 2}}};

Mpi mpi(Mpi::Kind kind, const std::string& version = "5.0.2") {
  return {kind, version, "/m/bin/mpiexec", "/m/lib", "here"};
}

std::string command(Mpi::Kind kind, const std::string& version, const Environment& environment = {}) {
  return shell_quoted(
      remote_launcher_for(kPlan, mpi(kind, version), "/t/tarantella", "10.0.0.1", environment).command.argv);
}

TEST(RemoteLauncher, FitsTheMpi) {
  EXPECT_EQ(command(Mpi::Kind::kMpich, "5.0.2"),
            "/m/bin/mpiexec -launcher ssh -hosts a,b -n 2 -ppn 1 -disable-auto-cleanup -localhost 10.0.0.1 "
            "/t/tarantella");
  EXPECT_EQ(command(Mpi::Kind::kOpenMpi, "5.0.3"),
            "/m/bin/mpiexec -n 2 --map-by ppr:1:node --bind-to none --runtime-options "
            "continuous,error-nonzero-status=0 --host a,b -x TARANTELLA_COORDINATOR /t/tarantella");
  EXPECT_EQ(command(Mpi::Kind::kOpenMpi, "4.1.4").find("--runtime-options"), std::string::npos);
}

TEST(RemoteLauncher, LeavesTheRemoteShellToTheUser) {
  EXPECT_EQ(command(Mpi::Kind::kMpich, "5", {{"HYDRA_LAUNCHER", "rsh"}}).find("-launcher"),
            std::string::npos);
  const auto options = [](const Environment& environment) {
    return remote_launcher_for(kPlan, mpi(Mpi::Kind::kMpich), "/t", "", environment).environment;
  };
  EXPECT_EQ(options({}).at("HYDRA_LAUNCHER_EXTRA_ARGS"), "-o BatchMode=yes -o ConnectTimeout=7");
  EXPECT_FALSE(options({{"HYDRA_LAUNCHER_EXTRA_ARGS", "-p 22"}}).contains("HYDRA_LAUNCHER_EXTRA_ARGS"));
}

TEST(RemoteLauncher, ThePluginOfSlurmFitsTheMpi) {
  const std::string list =
      "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n\tpmix\nspecific pmix plugin "
      "versions available: pmix_v4\n";
  EXPECT_EQ(plugin_for(mpi(Mpi::Kind::kMpich), list), "pmi2");
  EXPECT_EQ(plugin_for(mpi(Mpi::Kind::kIntel), list), "pmi2");
  EXPECT_EQ(plugin_for(mpi(Mpi::Kind::kOpenMpi), list), "pmix");
  EXPECT_EQ(plugin_for(mpi(Mpi::Kind::kOpenMpi), "none pmi2 pmix_v4"), "");
  EXPECT_EQ(plugin_for(mpi(Mpi::Kind::kMpich), ""), "");
}

TEST(RemoteLauncher, TellsAProcessItsHost) {
  EXPECT_EQ(host_index_from({{"PMI_RANK", "3"}}), 3);
  EXPECT_EQ(host_index_from({{"OMPI_COMM_WORLD_RANK", "1"}}), 1);
  EXPECT_EQ(host_index_from({{"SLURM_PROCID", "2"}, {"PMI_RANK", "x"}}), 2);
  EXPECT_EQ(host_index_from({}), -1);
}

TEST(RemoteLauncher, HydraGetsNoSecretThatItWouldSendOn) {
  const Environment environment{{"HF_TOKEN", "t"},     {"WANDB_API_KEY", "k"}, {"AWS_SECRET_ACCESS_KEY", "s"},
                                {"DB_PASSWORD", "p"},  {"PATH", "/bin"},       {"SSH_AUTH_SOCK", "/s"},
                                {"TNT_KEY_FILE", "/k"}};
  RemoteLauncher hydra;
  hydra.sends_environment = true;
  EXPECT_EQ(environment_for(hydra, environment),
            (Environment{{"PATH", "/bin"}, {"SSH_AUTH_SOCK", "/s"}, {"TNT_KEY_FILE", "/k"}}));
  EXPECT_EQ(environment_for({}, environment), environment);
}

TEST(RemoteLauncher, VariablesOfAnMpiJobAreForgotten) {
  Environment environment{{"PMI_FD", "9"},
                          {"PMIX_RANK", "1"},
                          {"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_MCA_btl", "self"},
                          {"PRTE_MCA_plm_ssh_agent", "rsh"}};
  remove_mpi_variables(environment);
  EXPECT_EQ(environment, (Environment{{"OMPI_MCA_btl", "self"}, {"PRTE_MCA_plm_ssh_agent", "rsh"}}));
}

TEST(Mpi, IsToldByItsVersion) {
  const auto name = [](const std::string& answer) {
    Mpi found;
    return read_version(answer, found) ? found.name() : "";
  };
  EXPECT_EQ(name("HYDRA build details:\n    Version:                 5.0.2\n"), "MPICH 5.0.2");
  EXPECT_EQ(name("Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 2026\n"), "Intel MPI 2021.18");
  EXPECT_EQ(name("mpiexec (Open MPI) 5.0.11\n"), "Open MPI 5.0.11");
  EXPECT_EQ(name("mpiexec (OpenRTE) 4.1.4\n"), "Open MPI 4.1.4");
  EXPECT_EQ(name("bash: nothing\n"), "");
}

TEST(Mpi, TheFirstThatHasALibraryIsUsedUnlessTheUserSaysOtherwise) {
  Mpi old = mpi(Mpi::Kind::kMpich, "4.1"), open = mpi(Mpi::Kind::kOpenMpi), fit = mpi(Mpi::Kind::kMpich);
  old.library = "";
  EXPECT_EQ(choose_mpi({old, fit, open}, "").value().name(), "MPICH 5.0.2");
  EXPECT_EQ(choose_mpi({old, fit, open}, "").value().mpi_library(), "mpi-abi:/m/lib");
  EXPECT_EQ(choose_mpi({old, fit, open}, "openmpi").value().mpi_library(), "openmpi:/m/lib");
  EXPECT_EQ(choose_mpi({fit}, "openmpi").status().code(), Code::kInvalidArgument);
  EXPECT_NE(choose_mpi({old}, "").status().message().find("pip install 'tarantella[mpi]'"),
            std::string::npos);
}

TEST(Mpi, ALibraryOfTheUserGoesWithItsOwnMpiexec) {
  const std::string library = "/proc/self/exe";  // is there
  Mpi first = mpi(Mpi::Kind::kMpich), own = mpi(Mpi::Kind::kIntel);
  const std::string mpi_library = "mpi-abi:" + library;
  EXPECT_EQ(choose_mpi({first, own}, mpi_library).value().kind, Mpi::Kind::kMpich);
  own.library = library;
  EXPECT_EQ(choose_mpi({first, own}, mpi_library).value().kind, Mpi::Kind::kIntel);
  EXPECT_EQ(choose_mpi({first}, mpi_library).value().mpi_library(), mpi_library);
  EXPECT_NE(
      choose_mpi({first}, "mpi-abi:/none").status().message().find("names a library that does not exist"),
      std::string::npos);
}

}  // namespace
}  // namespace tarantella::launch
