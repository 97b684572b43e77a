#pragma once
// The MPI that connects the hosts of a job: found, identified and chosen.

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/system/environment.h"

namespace tarantella::launch {

struct Mpi {
  enum class Kind { kMpich, kIntel, kOpenMpi };
  Kind kind = Kind::kMpich;
  std::string version;  ///< "5.0.2"; empty if it prints none
  std::string mpiexec;  ///< its path
  std::string library;  ///< the path of libmpi_abi.so.1 or libmpi.so.40; empty: it has none that fits
  std::string where;    ///< how it was found: "beside this Python"

  /// "MPICH 5.0.2".
  std::string name() const;
  /// The value of TNT_TRANSPORT for ranks: "mpi-abi:/path/libmpi_abi.so.1".
  std::string mpi_library() const;
};

/// Kind and version from what `mpiexec --version` prints; false if it is none that is known. Pure.
bool read_version(const std::string& answer, Mpi& mpi);

/// All that are installed beside the launcher, in `folder`, and in PATH, best first. Asks each for its version, for a
/// few seconds at most.
std::vector<Mpi> find_mpis(const Environment& environment, const std::string& folder);

/// The one to use of `found`: the first that has a library, or the first that TNT_TRANSPORT allows. That variable names
/// a kind, mpi-abi or openmpi, or kind:library. kInvalidArgument, with one line and the cure, if none fits.
Result<Mpi> choose_mpi(const std::vector<Mpi>& found, const std::string& mpi_library);

}  // namespace tarantella::launch
