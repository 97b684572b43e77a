#include "transport/mpi/mpi_start.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/network.h"
#include "transport/mpi/abort_guard.h"
#include "transport/mpi/library.h"
#include "transport/mpi/mpi_endpoint.h"
#include "transport/mpi/mpi_settings.h"
#include "transport/mpi/pmi_server.h"
#include "transport/mpi/scoped_environment.h"
#include "transport/mpi/signals_and_shm.h"

namespace tarantella::transport {
namespace {

constexpr Duration kSignalInterval = 20ms;

std::string over(const std::string& device) {
  return device.empty()
             ? ""
             : text(" over the network device ", device, " (", kDeviceVariable, " chooses another)");
}

struct Start {
  int error = 0;
  TntMpiJob job{};
};

Start start(const TntMpi& mpi) {
  Start started;
  catch_aborts();
  const SignalHandlers handlers;
  started.error = call_mpi([&] { return mpi.start(&started.job); });
  handlers.restore();
  return started;
}

/// start() on a thread of its own: MPI waits without a limit for a node that does not come.
Result<Start> start_until(Deadline deadline, const TntMpi& mpi, const std::string& device, int node,
                          Duration warn_every, const HeldSignals& signals) {
  std::packaged_task<Start()> task([&mpi] { return start(mpi); });
  std::future<Start> started = task.get_future();
  const auto since = Clock::now();
  auto warn_at = since + warn_every;
  std::thread(std::move(task)).detach();
  while (started.wait_for(std::min(kSignalInterval, deadline.left())) != std::future_status::ready) {
    if (signals.came()) return Status(Code::kSystem, "a signal has ended the start of MPI");
    if (!deadline.passed() && Clock::now() < warn_at) continue;
    warn_at += warn_every;
    const auto waited = std::chrono::round<std::chrono::seconds>(Clock::now() - since).count();
    if (deadline.passed())
      return Status(Code::kTimeout,
                    text("MPI did not start on machine ", node, " within ", waited,
                         " s: another machine did not join, or cannot be reached", over(device),
                         "; make the same calls on every rank (limit: TNT_TIMEOUT)"));
    log_warning(text("machine ", node, " has waited ", waited, " s for the other machines to start MPI"));
  }
  return started.get();
}

Status check(const TntMpiJob& job, const std::string& mpi_library, int node, int nodes) {
  if (job.at_end) return {Code::kSystem, "MPI has been finalized in this process, and cannot start again"};
  if (!job.threads)
    return {Code::kSystem, text(mpi_library,
                                " lets only one thread call it; initialize MPI with MPI_THREAD_SERIALIZED "
                                "or more, or leave that to Tarantella")};
  if (job.size != nodes)
    return {Code::kMismatch, text("MPI has started ", job.size, job.size == 1 ? " process" : " processes",
                                  ", not ", nodes, ": the MPI of mpiexec or srun differs from ", mpi_library,
                                  "; set TNT_TRANSPORT, or load the module of the MPI that started the job")};
  if (job.rank != node)
    return {Code::kMismatch, text("node ", node, " is rank ", job.rank, " of MPI; start the job with ",
                                  "`tarantella`, or number the nodes as MPI does")};
  return {};
}

/// Starts MPI, which finds `variables` in the environment.
Result<const TntMpi*> start_mpi(const std::string& mpi_library, Variables variables,
                                const std::string& device, int node, int nodes, Deadline deadline,
                                Duration warn_every) {
  const auto mpi = load_mpi(mpi_library);
  if (!mpi.ok()) return mpi.status();
  if (!device.empty()) TNT_RETURN_IF_ERROR(has_device(device));
  const auto before = shared_memory_files();
  const HeldSignals signals;
  variables.merge(settings_for(*mpi.value(), mpi_library.substr(mpi_library.find(':') + 1), device));
  const auto started = [&] {
    const ScopedEnvironment environment(variables);
    return start_until(deadline, *mpi.value(), device, node, warn_every, signals);
  }();
  // also of a start that MPI has broken off
  if (!started.ok() || started.value().error != 0 || started.value().job.alone) {
    for (const std::string& each : shared_memory_files()) {
      if (!before.contains(each)) (void)unlink(each.c_str());
    }
  }
  if (!started.ok()) return started.status();
  const auto& [error, job] = started.value();
  if (error != 0)
    return Status(Code::kSystem, text("cannot start ", mpi_library, over(device), ": ",
                                      describe_error(*mpi.value(), error)));
  TNT_RETURN_IF_ERROR(check(job, mpi_library, node, nodes));
  return mpi.value();
}

}  // namespace

Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    Deadline deadline, Duration warn_every) {
  const auto mpi = start_mpi(mpi_library, {}, device_to_use(""), node, nodes, deadline, warn_every);
  if (!mpi.ok()) return mpi.status();
  return endpoint_over(*mpi.value(), node, nodes, true);
}

Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    std::vector<Fd> leader_sockets, Deadline deadline,
                                                    Duration warn_every) {
  if (mpi_library.starts_with("openmpi"))
    return Status(
        Code::kInvalidArgument,
        "on several machines Open MPI carries data for `tarantella` only, not for ranks that another "
        "starter has started; pip install 'tarantella[mpi]' on all of them brings MPICH, or start with "
        "`tarantella`");
  const std::string device = device_to_use(device_of(leader_sockets.at(0).get()));
  Fd own;
  Status served;
  std::optional<PmiServer> manager;
  std::thread serving;
  if (node == 0) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return Status::system("socketpair for MPI", errno);
    own = Fd(ends[0]);
    leader_sockets.insert(leader_sockets.begin(), Fd(ends[1]));
    manager.emplace(std::move(leader_sockets));
    serving = std::thread([&] {
      served = manager->serve(deadline);
      if (!served.ok()) (void)manager->take_sockets();  // the others hear of it
    });
  } else {
    own = std::move(leader_sockets.at(0));
  }
  const auto mpi = start_mpi(mpi_library, process_variables(own.get(), node, nodes), device, node, nodes,
                             deadline, warn_every);
  const Status started = mpi.ok() ? PmiServer::finalize_pmi(own.get(), deadline) : mpi.status();
  // After an error the connection is shut down: that ends the process manager, and so the start on the other nodes. It
  // is not closed, since MPI may use its descriptor until the process ends.
  if (!mpi.ok()) (void)::shutdown(own.get(), SHUT_RDWR);
  std::map<int, Fd> liveness;
  if (node > 0) liveness.emplace(0, Fd(::fcntl(own.get(), F_DUPFD_CLOEXEC, 0)));
  static auto* const kept = new std::vector<Fd>;
  kept->push_back(std::move(own));
  if (serving.joinable()) serving.join();
  if (mpi.ok() && !served.ok()) return served;  // it names the machine
  if (!started.ok()) return started;
  if (manager) {
    std::vector<Fd> sockets = manager->take_sockets();
    for (size_t k = 1; k < sockets.size(); ++k) liveness.emplace(static_cast<int>(k), std::move(sockets[k]));
  }
  return endpoint_over(*mpi.value(), node, nodes, false, std::move(liveness));
}

}  // namespace tarantella::transport
