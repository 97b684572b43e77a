#pragma once
// What the environment must say while MPI starts, for our one use of it.

#include <string>
#include <vector>

#include "transport/mpi/table.h"

namespace tarantella::transport {

/// Sets, as long as it lives, what a user has not set. Not for use beside threads that read the environment.
class Settings {
 public:
  /// `library` is the path of MPI's.
  Settings(const TntMpi& mpi, const std::string& library);
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
  ~Settings();

 private:
  void set(const char* name, const std::string& value);

  std::vector<const char*> ours_;
};

}  // namespace tarantella::transport
