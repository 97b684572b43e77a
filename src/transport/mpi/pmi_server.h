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
#include "transport/mpi/scoped_environment.h"

namespace tarantella::transport {

class PmiServer {
 public:
  /// `sockets`: number k leads to the process that is rank k of MPI.
  explicit PmiServer(std::vector<Fd> sockets);

  /// Blocks until all processes have started MPI and called finalize_pmi(). Errors: kPeerLost if one has ended before;
  /// kTimeout; kMismatch for words that are not of the protocol.
  Status serve(Deadline deadline);
  /// The connections. Call it last.
  std::vector<Fd> take_sockets();

  /// In a process that has started MPI: ends its connection, which MPI keeps as a number, but uses no more. Blocks
  /// until the manager has heard it. Errors: kPeerLost if it is gone; kTimeout.
  static Status finalize_pmi(int socket, Deadline deadline);

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

/// What tells MPI that it is rank `rank` of `size`, and has a process manager at `socket`, in place of what another
/// starter has told this process.
Variables process_variables(int socket, int rank, int size);

}  // namespace tarantella::transport
