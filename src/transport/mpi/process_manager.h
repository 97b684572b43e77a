#pragma once
// What mpiexec is for the processes of MPI, as far as they need it to start: it tells each of them the addresses of the
// others. The protocol is version 1 of PMI, which MPICH and Intel MPI speak over a socket that they are given.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace tarantella::transport {

class ProcessManager {
 public:
  /// `sockets`: number k leads to the process that is rank k of MPI.
  explicit ProcessManager(std::vector<Fd> sockets);

  /// Blocks until all processes have started MPI and called let_go(). Errors: kPeerLost if one has ended before;
  /// kTimeout; kMismatch for words that are not of the protocol.
  Status serve(Deadline deadline);
  /// The connections. Call it last.
  std::vector<Fd> take_sockets();

  /// In a process that has started MPI: ends its connection, which MPI keeps as a number, but uses no more. Blocks
  /// until the manager has heard it. Errors: kPeerLost if it is gone; kTimeout.
  static Status let_go(int socket, Deadline deadline);

 private:
  struct Process {
    Fd socket;
    std::string heard;  ///< the beginning of a line
    bool is_done = false;
  };

  bool read(Process& process);
  bool take(Process& process, std::string_view line);
  void count_barrier();

  std::vector<Process> processes_;
  std::map<std::string, std::string, std::less<>> values_;
  size_t in_barrier_ = 0;
};

/// Tells MPI, as long as it lives, that it is rank `rank` of `size`, and has a process manager at `socket`. What
/// another starter has told this process is put back at the end. Not for use beside threads that read the environment.
class ProcessVariables {
 public:
  ProcessVariables(int socket, int rank, int size);
  ProcessVariables(const ProcessVariables&) = delete;
  ProcessVariables& operator=(const ProcessVariables&) = delete;
  ~ProcessVariables();

 private:
  std::map<std::string, std::string> before_;
};

}  // namespace tarantella::transport
