#pragma once
// What the environment must say while MPI starts, for our one use of it.

#include <string>
#include <vector>

#include "transport/mpi/table.h"

namespace tarantella::transport {

/// The network device that MPI is to use where the machines have met over `met`: the user's or the launcher's choice
/// first. Empty where there is a faster fabric than TCP, or a variable of MPI says what to use.
std::string device_to_use(const std::string& met);

/// Sets, as long as it lives, what a user has not set. Not for use beside threads that read the environment.
class Settings {
 public:
  /// `library` is the path of MPI's; `device` the network device to use, empty where MPI chooses.
  Settings(const TntMpi& mpi, const std::string& library, const std::string& device);
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
  ~Settings();

 private:
  void set(const char* name, const std::string& value);
  void take_device(const std::string& device);

  std::vector<const char*> ours_;
};

}  // namespace tarantella::transport
