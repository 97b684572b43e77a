#include "transport/mpi/settings.h"

#include <cstdlib>
#include <filesystem>

#include "transport/mpi/library.h"
#include "transport/wire.h"

namespace tarantella::transport {
namespace {

namespace fs = std::filesystem;

bool has_infiniband() {
  std::error_code error;
  const fs::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != fs::directory_iterator();
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

Settings::Settings(const TntMpi& mpi, const std::string& library) {
  const std::string name = name_of(mpi);
  // One process a host calls MPI, so it has no use for shared memory; test hosts are on one machine.
  set("MPIR_CVAR_NOLOCAL", "1");
  // Over TCP, the UCX of MPICH 5.0 is slower, and ends the process when it sends to one that has died.
  if (contains(name, "ch4:ucx") && contains(name, "ofi") && !has_infiniband())
    set("MPIR_CVAR_CH4_NETMOD", "ofi");
  // Where a transfer fails that is under way, MPICH ends the process: by a signal, which abort.h handles.
  set("MPIR_CVAR_COREDUMP_ON_ABORT", "1");
  // Open MPI 5 waits for a second for a fabric of one-sided calls, which nobody makes.
  set("OMPI_MCA_btl", "^ofi");
  // Over TCP, Open MPI asks before it sends more than 64 KiB. What comes unasked is copied once more, so it should not
  // be much. Headers count, too.
  set("OMPI_MCA_btl_tcp_eager_limit", std::to_string(kUnasked + 4096));
  // Without it, Open MPI 5 ends the process when another has died.
  set("OMPI_MCA_mpi_ft_enable", "1");
  // Intel MPI looks for its fabrics in the environment only; its wheel has them beside it.
  const fs::path folder = fs::path(library).parent_path();
  std::error_code ignored;
  if (fs::exists(folder / "libtcp-fi.so", ignored)) set("FI_PROVIDER_PATH", folder.string());
  // The wheel of Open MPI was built for another folder, where it misses its settings for failures and says so.
  const fs::path prefix = folder.parent_path();
  if (fs::exists(prefix / "share/openmpi", ignored)) set("OPAL_PREFIX", prefix.string());
}

Settings::~Settings() {
  for (const char* each : ours_) (void)unsetenv(each);
}

void Settings::set(const char* name, const std::string& value) {
  if (getenv(name) != nullptr) return;
  if (setenv(name, value.c_str(), 0) == 0) ours_.push_back(name);
}

}  // namespace tarantella::transport
