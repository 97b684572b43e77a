#pragma once
// The library of MPI that a job uses, found at run time: the core itself is linked to none.

#include <string>

#include "base/status.h"
#include "transport/mpi/plugin_api.h"

namespace tarantella::transport {

/// Loads the library of MPI that `mpi_library` names, and the plugin for its ABI, from the folder of the object that
/// this code is in (libtarantella.so). `mpi_library` is the value of TNT_TRANSPORT, an ABI and a path:
/// "mpi-abi:/path/to/libmpi_abi.so.1" (the standard ABI of MPI 5: MPICH 5, Intel MPI) or
/// "openmpi:/path/to/libmpi.so.40". Both stay loaded until the process ends. Any thread. Errors: kInvalidArgument for
/// another form; kSystem if a file is not there, or cannot be loaded, or does not fit, or if another MPI has been
/// loaded for all to see.
Result<const TntMpi*> load_mpi(const std::string& mpi_library);

/// The text of an error that call_mpi() has returned.
std::string describe_error(const TntMpi& mpi, int error);

/// The text by which a library of MPI calls itself.
std::string name_of(const TntMpi& mpi);

}  // namespace tarantella::transport
