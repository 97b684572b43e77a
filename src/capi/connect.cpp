#include "capi/connect.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "collective/internode/cluster_communicator.h"
#include "collective/node_communicator.h"
#include "runtime/job_barrier.h"
#include "runtime/leader_bootstrap.h"
#include "transport/mpi/mpi_start.h"
#include "transport/shm/shm_memory.h"

namespace tarantella::capi {
namespace {

using collective::internode::NodeMap;

/// Reads "2,2,1": the number of ranks of each node. kInvalidArgument if that is not `size` ranks in all.
Result<NodeMap> nodes_of(std::string_view list, int size) {
  const Status wrong(Code::kInvalidArgument, text("TNT_NODES must have the number of ranks of each machine, ",
                                                  size, " in all, as in 2,2 (got '", list, "')"));
  std::vector<int> node_of;
  int node = 0;
  for (std::string_view rest = list; !rest.empty(); ++node) {
    const size_t comma = std::min(rest.find(','), rest.size());
    int ranks = 0;
    if (!to_number(rest.substr(0, comma), ranks) || ranks < 1 || ranks > size) return wrong;
    node_of.insert(node_of.end(), static_cast<size_t>(ranks), node);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (node_of.size() != static_cast<size_t>(size) || list.ends_with(',')) return wrong;
  return NodeMap(node_of);
}

/// Connects the leaders. Where mpiexec or srun has started them as processes of MPI, MPI connects them. Otherwise they
/// connect to the leader on `first_host`, and start MPI over these connections.
Result<std::unique_ptr<transport::Endpoint>> endpoint_of(const tnt_options& options, int node, int nodes,
                                                         Deadline deadline, Duration warn_every) {
  const std::string mpi_library = options.transport == nullptr ? "" : options.transport;
  const std::string host = options.first_host == nullptr ? "" : options.first_host;
  if (host.empty()) return transport::make_mpi_endpoint(mpi_library, node, nodes, deadline, warn_every);
  const runtime::BootstrapOptions bootstrap{.host = host,
                                            .job_id = options.job,
                                            .layout = options.nodes,
                                            .node = node,
                                            .nodes = nodes,
                                            .warn_every = warn_every};
  auto connected = runtime::bootstrap_leaders(bootstrap, deadline);
  if (!connected.ok()) return connected.status();
  return transport::make_mpi_endpoint(mpi_library, node, nodes, std::move(connected).value(), deadline,
                                      warn_every);
}

template <typename Made>
Result<std::unique_ptr<collective::Communicator>> made(Result<std::unique_ptr<Made>> communicator) {
  if (!communicator.ok()) return communicator.status();
  return std::unique_ptr<collective::Communicator>(std::move(communicator).value());
}

}  // namespace

Result<std::unique_ptr<collective::Communicator>> connect(const tnt_options& options,
                                                          const collective::GroupOptions& group_options) {
  runtime::RendezvousOptions rendezvous;
  if (options.warn_every > 0) rendezvous.warn_every = from_seconds(options.warn_every);
  const Duration warn_every = rendezvous.warn_every;
  rendezvous.failure_delay = from_seconds(options.failure_delay);
  const auto deadline = Deadline::after(from_seconds(options.meet_timeout));
  const std::string_view list = options.nodes == nullptr ? "" : options.nodes;
  if (list.find(',') == std::string_view::npos) {
    rendezvous.rank_status = runtime::RankStatusFile::inherited(options.size);
    auto memory =
        transport::make_shm_memory(options.job, options.rank, options.size, deadline, std::move(rendezvous));
    if (!memory.ok()) return memory.status();
    return made(collective::NodeCommunicator::create(std::move(memory).value(), group_options));
  }
  auto nodes = nodes_of(list, options.size);
  if (!nodes.ok()) return nodes.status();
  if (options.rank < 0 || options.rank >= options.size)
    return Status(Code::kInvalidArgument, text("there is no rank ", options.rank, " of ", options.size));
  const size_t node = nodes.value().node_of(options.rank);
  const transport::NodeRanks node_ranks{nodes.value().ranks_of(node), options.size};
  const int local = options.rank - node_ranks.job_ranks.front();
  const int ranks = static_cast<int>(node_ranks.job_ranks.size());
  rendezvous.rank_status = runtime::RankStatusFile::inherited(options.size);
  TNT_RETURN_IF_ERROR(runtime::job_barrier(options.rank, options.size, deadline, rendezvous));
  rendezvous.rank_status = runtime::RankStatusFile::inherited(options.size, node_ranks.job_ranks.front());
  // hosts of a test, or the daemons of one machine, may see each other's names
  auto memory = transport::make_shm_memory(text(options.job, ".", node), local, ranks, deadline,
                                           std::move(rendezvous), &node_ranks);
  if (!memory.ok()) return memory.status();
  std::unique_ptr<transport::Endpoint> endpoint;
  if (local == 0) {
    // the other ranks of the node wait no longer than this for their leader
    const auto joined = Deadline::after(from_seconds(std::min(options.meet_timeout, options.stuck_timeout)));
    auto joins = endpoint_of(options, static_cast<int>(node), static_cast<int>(nodes.value().count()), joined,
                             warn_every);
    if (!joins.ok()) return joins.status();
    endpoint = std::move(joins).value();
  }
  return made(collective::internode::ClusterCommunicator::create(
      std::move(memory).value(), std::move(endpoint), nodes.value(), group_options,
      {.stuck_timeout = group_options.stuck_timeout}));
}

}  // namespace tarantella::capi
