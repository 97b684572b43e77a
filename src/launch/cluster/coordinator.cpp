#include "launch/cluster/coordinator.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <utility>

#include "launch/cluster/encryption.h"
#include "launch/cluster/host_snapshots.h"
#include "launch/cluster/remote_launcher_errors.h"
#include "launch/system/poller.h"

namespace tarantella::launch {
namespace {

constexpr char kNoInput[] =
    "WARNING: no rank of a job on several hosts reads stdin; open a file by its name, or redirect < "
    "/dev/null";
constexpr Duration kCheckInterval = 500ms;  // how often connections are checked
constexpr Duration kWarnOfStart = 5s;
constexpr Duration kEndWithin = 20s;  // after kEnd: longer than an agent waits for a stuck process
constexpr Duration kGather = 60s;     // for the timelines of all hosts, and for a snapshot
constexpr Duration kGatherHurried = 10s;
constexpr Duration kRemoteEnds = 3s;  // after the last agent

}  // namespace

Coordinator::Coordinator(const CoordinatorConfig& config, Listener listener, Signals& signals,
                         const OrphanReaper& orphan_reaper)
    : config_(config),
      listener_(std::in_place, std::move(listener.socket), config.secret),
      signals_(signals),
      orphan_reaper_(orphan_reaper),
      hosts_(config.spec.assignments) {}

JobResult Coordinator::run() {
  const Status started =
      remote_.start(config_.remote.command, config_.remote_environment, signals_.inherited());
  if (!started.ok()) {
    print_message(started.message());
    return {.code = kCannotRun};
  }
  if (input_.is_redirected() && config_.options.shows_warnings()) output_.put_message(kNoInput);
  deadline_ = Deadline::after(config_.start_timeout);
  warn_of_start_ = Deadline::after(kWarnOfStart);
  for (run_due_steps(); !hosts_.all_finished(); run_due_steps()) wait();
  gather_timelines();
  gather_snapshot();
  hosts_.flush_all(1s);
  for (HostTable::Entry& host : hosts_) host.connection.reset();
  const bool skip_grace = start_failure_ || exits_.has_lost();  // it waits for a host that does not answer
  remote_.end(skip_grace ? Duration::zero() : Duration(kRemoteEnds), start_failure_ ? Duration(200ms) : 2s,
              orphan_reaper_);
  return conclude();
}

JobResult Coordinator::conclude() {
  JobResult result =
      start_failure_ ? *start_failure_ : exits_.result(interrupted_by_, remote_.output_excerpt());
  if (exits_.has_lost()) output_.put(true, termination_notices(remote_.output_excerpt()));
  output_.put(true, result.message);
  output_.flush(signals_, interrupted_by_ != 0, true);
  result.code = output_.exit_code_after_output(result.code);
  result.progressed = progressed_;
  if (running_) config_.timelines.write();
  if (pending_signal_) signals_.put_back(*pending_signal_);
  return result;
}

void Coordinator::wait() {
  Poller poller;
  poller.add(signals_.fd(), POLLIN, [this] {
    while (const auto event = signals_.next()) handle_signal(*event);
  });
  if (config_.options.shows_warnings()) {
    poller.add(input_.watched(), POLLIN, [this] {
      if (input_.has_data()) output_.put_message(kNoInput);
    });
  }
  remote_.watch(poller);
  if (listener_) {
    for (const int fd : listener_->descriptors()) poller.add(fd, POLLIN);
  }
  for (Connection& connection : pending_connections_)
    connection.watch(poller, [this, &connection] { handle_hello(connection); });
  const bool reading_paused = is_reading_paused();
  for (size_t index = 0; index < hosts_.size(); ++index) {
    if (!hosts_[index].connection) continue;
    hosts_[index].connection->watch(
        poller,
        [this, index] {
          hosts_[index].last_message_at = Clock::now();
          for (const Message& message : hosts_[index].connection->read()) handle_message(index, message);
        },
        reading_paused);
  }
  output_.watch(poller, {});
  if (poller.wait(static_cast<int>(kCheckInterval / 1ms))) poller.handle();
  std::erase_if(pending_connections_, [](const Connection& each) { return each.closed(); });
  if (listener_) {
    for (Fd& socket : listener_->accept()) pending_connections_.emplace_back(std::move(socket));
  }
  check_hosts();
  check_remote();
}

void Coordinator::check_hosts() {
  const auto now = Clock::now();
  const bool may_judge_silence =
      now - std::exchange(checked_at_, now) <= 2 * kCheckInterval && !is_reading_paused();
  for (size_t index = 0; index < hosts_.size(); ++index) {
    HostTable::Entry& host = hosts_[index];
    if (host.connection) host.connection->check();
    if (host.connection && host.connection->closed())
      mark_lost(index, "the machine, the network or the launcher there has failed");
    if (!may_judge_silence) host.last_message_at = now;
    const auto silence = now - host.last_message_at;
    if (running_ && !host.finished &&
        silence > (exits_.failed() ? Connection::kPeerTimeout : config_.heartbeat_timeout))
      mark_lost(index, text("it has not answered for ",
                            std::chrono::duration_cast<std::chrono::seconds>(silence).count(),
                            " s; it is paused, stopped or swapping"));
  }
}

void Coordinator::handle_hello(Connection& connection) {
  const std::vector<Message> messages = connection.read();
  if (messages.empty()) return;
  const std::optional<Hello> hello = decode_hello(messages[0]);
  if (!hello) return connection.close();
  const auto index = static_cast<size_t>(hello->index);
  if (hello->index < 0 || index >= hosts_.size() || hosts_[index].connection) {
    connection.close();
    return fail_start(text("'", printable(hello->host), "' claims to be host ", hello->index, " of ",
                           hosts_.size(), ": it was started by another MPI than the launcher's"));
  }
  HostTable::Entry& host = hosts_[index];
  if (hello->version != TARANTELLA_VERSION) {
    return fail_start(text("host '", host.assignment.host, "' has tarantella ", printable(hello->version),
                           ", but this one is ", TARANTELLA_VERSION,
                           "; install the same version on all hosts"));
  }
  JobSpec spec = config_.spec;
  spec.environment = changes_to(config_.environment, hello->variable_macs, config_.secret);
  host.connection = std::make_unique<Connection>(std::move(connection));
  host.connection->send(Message::Kind::kJob, encrypt(config_.secret, encode(spec)));
  if (config_.snapshots == nullptr) return;
  if (index != 0) return host.connection->send(Message::Kind::kSnapshotEnd);
  send_snapshot(*config_.snapshots, *host.connection);  // rank 0 is there
  deadline_ = Deadline::after(config_.start_timeout);   // large ones take a while
}

void Coordinator::handle_message(size_t index, const Message& message) {
  HostTable::Entry& from = hosts_[index];
  switch (message.kind) {
    case Message::Kind::kReady:
      if (auto warnings = decode_warnings(message)) {
        from.ready = true;
        from.warnings = *std::move(warnings);
      } else {
        fail_start(text("host '", from.assignment.host, "' uses another protocol; ",
                        "install the same version of tarantella on all hosts"));
      }
      return;
    case Message::Kind::kRefused:
      if (const auto refusal = decode_result(message)) {
        fail_start(text("host '", from.assignment.host, "': ", refusal->message), refusal->code);
      }
      return;
    case Message::Kind::kOutput:
    case Message::Kind::kError:
      return output_.put(message.kind == Message::Kind::kError, message.content);
    case Message::Kind::kRankStatus:
      if (const auto states = decode_states(message)) hosts_.receive_rank_status(index, *states);
      return;
    case Message::Kind::kProgress:
      progressed_ = true;
      return;
    case Message::Kind::kSnapshotNumber:
      from.snapshot = decode_number(message).value_or(0);
      return;
    case Message::Kind::kSnapshot:
      if (!gathering_ || config_.snapshots == nullptr) return;
      if (!config_.snapshots->append_to_older(message.content)) gathering_ = false;
      return;
    case Message::Kind::kSnapshotEnd:
      from.snapshot = 0;
      return;
    case Message::Kind::kResult:
      if (const auto result = decode_result(message); result && !from.finished) {
        from.finished = true;
        from.sends_timeline = true;
        exits_.on_exit(static_cast<int>(index), *result, Clock::now());
      }
      return;
    case Message::Kind::kTimeQuery:
      if (const auto query = decode_time(message)) {
        from.connection->send(Message::Kind::kTimeReply, encode(Time{query->query, timeline::now()}));
      }
      return;
    case Message::Kind::kClock:
    case Message::Kind::kRecords:
    case Message::Kind::kRecordsEnd:
      return config_.timelines.take(index, message);
    default:
      return;  // only a coordinator sends them
  }
}

void Coordinator::mark_lost(size_t index, const std::string& why) {
  HostTable::Entry& host = hosts_[index];
  host.connection.reset();
  if (std::exchange(host.finished, true)) return;
  if (!running_) {
    return fail_start_of_unready_hosts(
        host.assignment.host, text("host '", host.assignment.host, "' was lost while the job started; ",
                                   error_in(remote_.output_excerpt())));
  }
  exits_.on_loss(static_cast<int>(index), host.assignment.host,
                 text("lost host '", host.assignment.host, "' with ", hosts_.ranks_of(index), ": ", why,
                      "; the other ranks were stopped"),
                 Clock::now());
}

void Coordinator::on_remote_output(std::string_view output) {
  const std::string missing = missing_program(remote_.output_excerpt());
  if (!running_ && !missing.empty()) fail_start(missing, kCannotRun);
  if (config_.options.log_level == "DEBUG") output_.put(true, output);
}

void Coordinator::check_remote() {
  const std::optional<Exit> exit = remote_.ended();
  if (!exit) return;
  const std::string& program = config_.remote.command.argv[0];
  if (!running_ && !start_failure_) {
    const std::string output = error_in(remote_.output_excerpt());
    const std::string why = output.empty() ? text("it ended with exit code ", exit->code()) : output;
    return fail_start_of_unready_hosts(
        why, text("cannot start ", hosts_.unready_hosts(), " with ", program, ": ", why));
  }
  if (exit->by_signal && running_ && !hosts_.all_finished()) {
    exits_.on_loss(
        -1, "",
        text(program, " (pid ", remote_.pid(), "), which connects the hosts, was killed by signal ",
             signal_name(exit->value), "; the ranks were stopped"),
        Clock::now());
  }
}

void Coordinator::handle_signal(const Signals::Event& event) {
  if (event.number == SIGCHLD) return;
  if (event.number == SIGTSTP) return suspend();
  const bool is_user_signal = event.number == SIGUSR1 || event.number == SIGUSR2;
  if (gathering_) {
    if (!is_user_signal) pending_signal_ = event;
    gathering_ = is_user_signal;
    return;
  }
  if (running_) hosts_.broadcast(Message::Kind::kSignal, encode(event));
  if (is_user_signal) return;
  if (interrupted_by_ == 0) interrupted_by_ = event.number;
  if (!running_ && !start_failure_) fail_start_with(exits_.result(interrupted_by_));
}

void Coordinator::suspend() {
  const auto send_signal = [this](int number) {
    hosts_.broadcast(Message::Kind::kSignal, encode(Signals::Event{number}));
    hosts_.flush_all(1s);
  };
  send_signal(SIGTSTP);
  suspend_until_resumed();
  send_signal(SIGCONT);
}

void Coordinator::fail_start(const std::string& why, int code) {
  fail_start_with({.code = code, .message = message_line(why)});
}

void Coordinator::fail_start_with(JobResult result) {
  if (!start_failure_) start_failure_ = std::move(result);
  hosts_.finish_all();
}

void Coordinator::fail_start_of_unready_hosts(const std::string& output, const std::string& why) {
  std::vector<std::string> lost = hosts_.unready_host_names();
  const auto is_named = [&](const std::string& host) { return output.find(host) != std::string::npos; };
  if (std::any_of(lost.begin(), lost.end(), is_named)) std::erase_if(lost, std::not_fn(is_named));
  fail_start_with({.code = kLaunchError,
                   .message = message_line(why),
                   .failure = FailureKind::kHost,
                   .lost_hosts = std::move(lost),
                   .started = false});
}

void Coordinator::run_due_steps() {
  if (!running_ && !start_failure_) try_start();
  if (!running_) return;
  hosts_.send_rank_status(kCheckInterval);
  if (exits_.failed() && !end_sent_ && interrupted_by_ == 0 && Clock::now() >= exits_.end_others_at()) {
    end_sent_ = true;
    deadline_ = Deadline::after(kEndWithin);
    hosts_.broadcast(Message::Kind::kEnd);
  }
  if (deadline_ && deadline_->passed()) hosts_.finish_all();
}

void Coordinator::try_start() {
  if (hosts_.all_ready()) {
    running_ = true;
    deadline_.reset();
    pending_connections_.clear();
    listener_.reset();
    if (config_.options.shows_warnings()) {
      for (const std::string& line : hosts_.warnings()) output_.put_message(line);
    }
    return hosts_.broadcast(Message::Kind::kStart);
  }
  if (warn_of_start_ && warn_of_start_->passed()) {
    warn_of_start_.reset();
    if (config_.options.shows_warnings())
      output_.put_message(text("WARNING: still waiting for ", hosts_.unready_hosts(), " to start, for up to ",
                               in_seconds(config_.start_timeout), " s (--start-timeout)"));
  }
  if (!deadline_ || !deadline_->passed()) return;
  const std::string output = error_in(remote_.output_excerpt());
  fail_start_of_unready_hosts(
      output, text(hosts_.unready_hosts(), " did not answer within ", in_seconds(config_.start_timeout), " s",
                   output.empty() ? "; try ssh to it, or raise the limit (--start-timeout)" : ": " + output));
}

void Coordinator::gather_timelines() {
  if (!running_) return;
  const Deadline deadline = Deadline::after(interrupted_by_ != 0 ? kGatherHurried : kGather);
  const auto is_awaited = [this](const HostTable::Entry& host) {
    const auto index = static_cast<size_t>(&host - &hosts_[0]);
    return host.connection && host.sends_timeline && !config_.timelines.complete(index);
  };
  gathering_ = true;
  while (gathering_ && !deadline.passed() && std::any_of(hosts_.begin(), hosts_.end(), is_awaited)) wait();
  gathering_ = false;
}

void Coordinator::gather_snapshot() {
  if (config_.snapshots == nullptr || !exits_.failed() || interrupted_by_ != 0 || pending_signal_) return;
  const auto newest_of = [](const HostTable::Entry& host) { return host.connection ? host.snapshot : 0; };
  const auto is_older = [&](const HostTable::Entry& a, const HostTable::Entry& b) {
    return newest_of(a) < newest_of(b);
  };
  const auto newest = [&] { return std::max_element(hosts_.begin(), hosts_.end(), is_older); };
  const uint64_t wanted = newest_of(*newest());
  gathering_ = true;
  while (gathering_ && newest_of(*newest()) > config_.snapshots->newest()) {
    HostTable::Entry& host = *newest();
    config_.snapshots->clear_older();
    host.connection->send(Message::Kind::kSnapshotQuery);
    host.last_message_at = Clock::now();
    while (gathering_ && newest_of(host) > 0 && Clock::now() - host.last_message_at < kSnapshotStall) wait();
    if (newest_of(host) > 0) host.connection.reset();  // what it still sends is no part of another host's
  }
  gathering_ = false;
  if (wanted > config_.snapshots->newest() && config_.options.shows_warnings())
    output_.put_message(
        "WARNING: the latest snapshot could not be fetched; training goes on from an earlier one");
}

}  // namespace tarantella::launch
