// PmiServer: an input is what two processes of MPI say to it, first one, then the other.

#include "transport/mpi/pmi_server.h"

#include <sys/socket.h>

#include <utility>
#include <vector>

#include "target.h"

using tarantella::Code;
using tarantella::Deadline;
using tarantella::Fd;
using tarantella::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<Fd> theirs, ours;
  const size_t sizes[] = {size / 2, size - size / 2};
  for (size_t k = 0; k < 2; ++k) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
    ours.emplace_back(ends[0]);
    theirs.emplace_back(ends[1]);
    const int room = 8 << 20;  // for all answers, which nobody reads
    (void)::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    (void)::send(ends[0], data + (k == 0 ? 0 : sizes[0]), sizes[k], MSG_NOSIGNAL);
    ::shutdown(ends[0], SHUT_WR);
  }
  tarantella::transport::PmiServer manager(std::move(theirs));
  const tarantella::Status status = manager.serve(Deadline::after(std::chrono::seconds(5)));
  require(status.ok() || status.code() == Code::kPeerLost, "it ends when the processes have");
  return 0;
}
