#include "launch/cluster/agent.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/host.h"
#include "base/network.h"
#include "launch/cli/versions.h"
#include "launch/cluster/addresses.h"
#include "launch/cluster/agent_process.h"
#include "launch/cluster/connection.h"
#include "launch/cluster/coordinator_link.h"
#include "launch/cluster/encryption.h"
#include "launch/cluster/host_job_plan.h"
#include "launch/cluster/host_snapshots.h"
#include "launch/cluster/host_timelines.h"
#include "launch/cluster/remote_launcher.h"
#include "launch/ranks/dry_run.h"
#include "launch/system/message.h"
#include "runtime/authenticated_listener.h"

namespace tarantella::launch {
namespace {

constexpr Duration kReplyTimeout = 30s;
constexpr Duration kConnectTimeout = 5s;
constexpr Duration kFinalOutputTimeout = 60s;  // for the last output of the ranks and their timelines

/// How to find the coordinator: the value of kCoordinatorVariable.
struct CoordinatorAddress {
  std::string secret;
  int port = 0;
  std::vector<std::string> addresses;
};

std::optional<CoordinatorAddress> parse_coordinator_address(const std::string& value) {
  std::istringstream in(value);
  CoordinatorAddress address;
  std::string addresses;
  if (!(in >> address.secret >> address.port >> addresses)) return std::nullopt;
  std::istringstream list(addresses);
  for (std::string each; std::getline(list, each, ',');) address.addresses.push_back(each);
  return address;
}

int fail(const std::string& why) {
  print_message(text("host '", host_name(), "': ", printable(why)));
  return kLaunchError;
}

/// A connection to the coordinator, after both have proved that they know the secret.
Result<Connection> connect_to_coordinator(const CoordinatorAddress& address) {
  const Deadline deadline = Deadline::after(kConnectTimeout);
  for (;;) {
    Result<Fd> socket = connect_to(address.addresses, address.port, deadline);
    if (!socket.ok()) return socket.status();
    if (runtime::authenticate(socket.value().get(), address.secret, deadline)) {
      return Connection(std::move(socket).value());
    }
    // among many connections that prove nothing the coordinator may have dropped this one, too
    if (deadline.passed()) {
      return Status(Code::kTimeout, "the job's launcher does not answer, or another program has its port");
    }
  }
}

/// The first message of this kind; empty if the coordinator is gone or too slow. Later ones stay with the connection.
std::optional<Message> await_message(Connection& coordinator, Message::Kind kind, Deadline deadline) {
  for (; !coordinator.closed() && !deadline.passed(); coordinator.check()) {
    coordinator.flush(deadline);
    std::vector<Message> messages =
        coordinator.wait_for_messages(Deadline::after(std::min<Duration>(1s, deadline.left())));
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [kind](const Message& each) { return each.kind == kind; });
    if (found == messages.end()) continue;
    Message wanted = std::move(*found);
    messages.erase(messages.begin(), found + 1);
    coordinator.put_back(std::move(messages));
    return wanted;
  }
  return std::nullopt;
}

std::optional<JobSpec> request_job_spec(Connection& coordinator, const std::string& secret, int index,
                                        const Environment& agent_environment) {
  coordinator.send(Message::Kind::kHello, encode(Hello{TARANTELLA_VERSION, host_name(), index,
                                                       variable_macs_of(agent_environment, secret)}));
  std::optional<Message> job =
      await_message(coordinator, Message::Kind::kJob, Deadline::after(kReplyTimeout));
  std::optional<std::string> content = job ? decrypt(secret, job->content) : std::nullopt;
  return content ? decode_job_spec({Message::Kind::kJob, *std::move(content)}) : std::nullopt;
}

/// Sends why this host cannot run its part.
void send_refusal(const Status& status, Connection& coordinator) {
  const int code = status.code() == Code::kInvalidArgument ? kUsageError : kCannotRun;
  coordinator.send(Message::Kind::kRefused,
                   encode(JobResult{.code = code, .message = printable(status.message())}));
  coordinator.flush(Deadline::after(kConnectTimeout));
}

/// Sends what --dry-run shows of this host.
JobResult describe(const HostJobPlan& host_plan, const LocalJobSpec& spec, Connection& coordinator) {
  const std::string& host = host_plan.assignment().host;
  const Versions versions = query_versions(spec.command, spec.environment);
  if (const std::string warning = version_warning(versions);
      !warning.empty() && spec.options.shows_warnings()) {
    coordinator.send(Message::Kind::kError, message_line(text("WARNING: host '", host, "': ", warning)));
  }
  coordinator.send(
      Message::Kind::kOutput,
      text("host ", host, ": ",
           describe_placement(spec.placement, spec.command, spec.overrides, versions, spec.first_rank)));
  return {};
}

JobResult run_ranks(const HostJobPlan& host_plan, const LocalJobSpec& spec, Signals& signals,
                    Connection& coordinator) {
  if (spec.options.action == Action::kDryRun) return describe(host_plan, spec, coordinator);
  CoordinatorLink link(coordinator);
  const Result<JobResult> result = run_local_job(spec, signals, link);
  if (result.ok()) return result.value();
  return {.code = kLaunchError,
          .message = message_line(text("host '", host_name(), "': ", printable(result.status().message())))};
}

}  // namespace

bool is_agent() { return std::getenv(kCoordinatorVariable) != nullptr; }

int run_agent() {
  Environment agent_environment = current_environment();
  const Fd pmi(close_leaked_descriptors(agent_environment));
  if (const std::optional<int> code = continue_in_child()) return *code;
  Result<Signals> signals = Signals::open();
  if (!signals.ok()) return fail(signals.status().message());
  const std::optional<CoordinatorAddress> address =
      parse_coordinator_address(agent_environment[kCoordinatorVariable]);
  agent_environment.erase(kCoordinatorVariable);
  if (!address) return fail(text(kCoordinatorVariable, " does not say where the job's launcher is"));
  Result<Connection> connected = connect_to_coordinator(*address);
  if (!connected.ok()) return fail(connected.status().message());
  Connection& coordinator = connected.value();
  const int index = host_index_from(agent_environment);
  const std::optional<JobSpec> spec =
      request_job_spec(coordinator, address->secret, index, agent_environment);
  if (!spec) return kLaunchError;  // the coordinator knows why
  Result<HostJobPlan> host_plan = plan_host_job(*spec, index, agent_environment);
  if (!host_plan.ok()) {
    send_refusal(host_plan.status(), coordinator);
    return 0;
  }
  host_plan.value().network_interface = device_of(coordinator.fd());
  SnapshotMemory snapshots;
  if (spec->keeps_snapshots) {
    Result<SnapshotMemory> made = SnapshotMemory::make();
    if (!made.ok()) {
      send_refusal(made.status(), coordinator);
      return 0;
    }
    snapshots = std::move(made).value();
    if (!receive_snapshot(snapshots, coordinator)) return kLaunchError;
    host_plan.value().environment[SnapshotMemory::kVariable] = snapshots.descriptors();
  }
  const Placement& placement = host_plan.value().placement;
  const AgentTimelines timelines(spec->options, placement.ranks, host_plan.value().assignment().first_rank,
                                 coordinator);
  coordinator.send(Message::Kind::kReady, encode(placement.warnings));
  // The coordinator waits for the slowest host, as long as --start-timeout says, and then closes the connection.
  if (!await_message(coordinator, Message::Kind::kStart, Deadline::after(kForever))) return kLaunchError;
  const LocalJobSpec local = host_plan.value().local_spec(timelines.memory(), pmi.get());
  const JobResult result = run_ranks(host_plan.value(), local, signals.value(), coordinator);
  announce_snapshot(snapshots, coordinator);
  coordinator.send(Message::Kind::kResult, encode(result));
  const Deadline deadline = Deadline::after(kFinalOutputTimeout);
  timelines.send(deadline);
  // Waits until all hosts have finished: MPICH's mpiexec may die of SIGPIPE when the first of several ends.
  coordinator.close_gracefully(deadline, [&](const Message& message) {
    if (message.kind == Message::Kind::kSnapshotQuery) send_snapshot(snapshots, coordinator);
  });
  return 0;
}

}  // namespace tarantella::launch
