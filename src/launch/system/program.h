#pragma once
// Programs: found, and with the arguments to run them.

#include <string>
#include <vector>

namespace tarantella::launch {

struct Command {
  std::string program;            ///< a path for execve, not searched in PATH
  std::vector<std::string> argv;  ///< with the program's name
};

/// The folder of the running executable; empty if it cannot be read.
std::string own_folder();

/// Whether there is a file that this process may execute.
bool is_program(const std::string& path);

/// The first program of this name in `path`, a value of PATH; empty if there is none.
std::string program_in(const std::string& path, const std::string& name);

}  // namespace tarantella::launch
