#pragma once
// What the environment must say while MPI starts, for our one use of it.

#include <string>

#include "transport/mpi/plugin_api.h"
#include "transport/mpi/scoped_environment.h"

namespace tarantella::transport {

/// The network device that MPI is to use where the leaders are connected over `connected`: the user's or the launcher's
/// choice first. Empty where there is a faster fabric than TCP, or a variable of MPI says what to use.
std::string device_to_use(const std::string& connected);

/// What the environment lacks of that: what a user has set stays. `library` is the path of MPI's; `device` the network
/// device to use, empty where MPI chooses.
Variables settings_for(const TntMpi& mpi, const std::string& library, const std::string& device);

}  // namespace tarantella::transport
