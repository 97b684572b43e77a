#include "capi/connect.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "runtime/gathering.h"
#include "runtime/leaders.h"
#include "transport/mpi/mpi_wire.h"
#include "transport/shm/shm_memory.h"

namespace tarantella::capi {
namespace {

using collective::across::Nodes;

/// Reads "2,2,1": the number of ranks of each node. kInvalidArgument if that is not `size` ranks in all.
Result<Nodes> nodes_of(std::string_view list, int size) {
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
  return Nodes(node_of);
}

/// Joins the leaders: they are the processes of MPI, or meet at the first one's host and become that.
Result<std::unique_ptr<transport::Wire>> wire_of(const tnt_options& options, int node, int nodes,
                                                 Deadline deadline, Duration warn_every) {
  const std::string transport = options.transport == nullptr ? "" : options.transport;
  const std::string host = options.first_host == nullptr ? "" : options.first_host;
  if (host.empty()) return transport::make_mpi_wire(transport, node, nodes, deadline, warn_every);
  const runtime::Leaders leaders{.host = host,
                                 .job = options.job,
                                 .layout = options.nodes,
                                 .node = node,
                                 .nodes = nodes,
                                 .warn_every = warn_every};
  auto met = runtime::meet_leaders(leaders, deadline);
  if (!met.ok()) return met.status();
  return transport::make_mpi_wire(transport, node, nodes, std::move(met).value(), deadline, warn_every);
}

}  // namespace

Result<Connection> connect(const tnt_options& options) {
  runtime::MeetingOptions meeting;
  if (options.warn_every > 0) meeting.warn_every = from_seconds(options.warn_every);
  const Duration warn_every = meeting.warn_every;
  meeting.grace = from_seconds(options.grace);
  const auto deadline = Deadline::after(from_seconds(options.meet_timeout));
  const std::string_view list = options.nodes == nullptr ? "" : options.nodes;
  if (list.find(',') == std::string_view::npos) {
    meeting.attendance = runtime::Attendance::inherited(options.size);
    auto memory =
        transport::make_shm_memory(options.job, options.rank, options.size, deadline, std::move(meeting));
    if (!memory.ok()) return memory.status();
    return Connection{std::move(memory).value(), std::nullopt, nullptr};
  }
  auto nodes = nodes_of(list, options.size);
  if (!nodes.ok()) return nodes.status();
  if (options.rank < 0 || options.rank >= options.size)
    return Status(Code::kInvalidArgument, text("there is no rank ", options.rank, " of ", options.size));
  const size_t node = nodes.value().node_of(options.rank);
  const transport::PartOfJob part{nodes.value().ranks_of(node), options.size};
  const int local = options.rank - part.ranks.front();
  const int near = static_cast<int>(part.ranks.size());
  meeting.attendance = runtime::Attendance::inherited(options.size);
  TNT_RETURN_IF_ERROR(runtime::gather_job(options.rank, options.size, deadline, meeting));
  meeting.attendance = runtime::Attendance::inherited(options.size, part.ranks.front());
  // hosts of a test, or the daemons of one machine, may see each other's names
  auto memory = transport::make_shm_memory(text(options.job, ".", node), local, near, deadline,
                                           std::move(meeting), &part);
  if (!memory.ok()) return memory.status();
  Connection connection{std::move(memory).value(), std::move(nodes).value(), nullptr};
  if (local == 0) {
    // the node's other ranks wait for this one no longer
    const auto joined = Deadline::after(from_seconds(std::min(options.meet_timeout, options.stuck_timeout)));
    auto wire = wire_of(options, static_cast<int>(node), static_cast<int>(connection.nodes->count()), joined,
                        warn_every);
    if (!wire.ok()) return wire.status();
    connection.wire = std::move(wire).value();
  }
  return connection;
}

}  // namespace tarantella::capi
