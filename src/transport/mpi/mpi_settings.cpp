#include "transport/mpi/mpi_settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "base/network.h"
#include "transport/endpoint.h"
#include "transport/mpi/library.h"

namespace tarantella::transport {
namespace {

namespace fs = std::filesystem;

/// Whether there are devices of a class that libfabric and UCX use without TCP: InfiniBand, EFA and Omni-Path, or
/// Slingshot.
bool has_fast_fabric() {
  const auto has_devices = [](const char* folder) {
    std::error_code error;
    const fs::directory_iterator devices(folder, error);
    return !error && devices != fs::directory_iterator();
  };
  return has_devices("/sys/class/infiniband") || has_devices("/sys/class/cxi");
}

/// By which a user chooses the network of an MPI.
constexpr const char* kChoices[] = {"FI_PROVIDER",
                                    "FI_TCP_IFACE",
                                    "FI_SOCKETS_IFACE",
                                    "MPIR_CVAR_OFI_USE_PROVIDER",
                                    "I_MPI_OFI_PROVIDER",
                                    "I_MPI_FABRICS",
                                    "UCX_NET_DEVICES",
                                    "UCX_TLS",
                                    "OMPI_MCA_pml",
                                    "OMPI_MCA_btl",
                                    "OMPI_MCA_btl_tcp_if_include",
                                    "OMPI_MCA_btl_tcp_if_exclude"};

bool user_has_chosen() {
  return std::any_of(std::begin(kChoices), std::end(kChoices),
                     [](const char* each) { return getenv(each) != nullptr; });
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

std::string device_to_use(const std::string& connected) {
  if (has_fast_fabric() || user_has_chosen()) return "";
  const char* chosen = getenv(kDeviceVariable);
  return chosen == nullptr ? connected : chosen;
}

Variables settings_for(const TntMpi& mpi, const std::string& library, const std::string& device) {
  Variables settings;
  const auto set = [&settings](const char* variable, const std::string& value) {
    if (getenv(variable) == nullptr) settings.emplace(variable, value);
  };
  if (!device.empty()) {
    // Without these, libfabric takes the first device of its provider "sockets", though it leads nowhere.
    set("FI_PROVIDER", "tcp");
    set("FI_TCP_IFACE", device);
    set("UCX_NET_DEVICES", device);
    set("OMPI_MCA_btl_tcp_if_include", device);
  }
  const std::string name = name_of(mpi);
  // One process a host calls MPI, so it has no use for shared memory; test hosts are on one machine.
  set("MPIR_CVAR_NOLOCAL", "1");
  // Over TCP, the UCX of MPICH 5.0 is slower, and ends the process when it sends to one that has died.
  if (contains(name, "ch4:ucx") && contains(name, "ofi") && !has_fast_fabric())
    set("MPIR_CVAR_CH4_NETMOD", "ofi");
  // Where a transfer fails that is under way, MPICH ends the process: by a signal, which abort_guard.h handles.
  set("MPIR_CVAR_COREDUMP_ON_ABORT", "1");
  // Open MPI 5 waits for a second for a fabric of one-sided calls, which nobody makes.
  set("OMPI_MCA_btl", "^ofi");
  // Over TCP, Open MPI asks before it sends more than 64 KiB. What comes unasked is copied once more, so it should not
  // be much. Headers count, too.
  set("OMPI_MCA_btl_tcp_eager_limit", std::to_string(kEagerLimit + 4096));
  // Without it, Open MPI 5 ends the process when another has died.
  set("OMPI_MCA_mpi_ft_enable", "1");
  // Intel MPI looks for its fabrics in the environment only; its wheel has them beside it.
  const fs::path folder = fs::path(library).parent_path();
  std::error_code ignored;
  if (fs::exists(folder / "libtcp-fi.so", ignored)) set("FI_PROVIDER_PATH", folder.string());
  // The wheel of Open MPI was built for another folder, where it misses its settings for failures and says so.
  const fs::path prefix = folder.parent_path();
  if (fs::exists(prefix / "share/openmpi", ignored)) set("OPAL_PREFIX", prefix.string());
  return settings;
}

}  // namespace tarantella::transport
