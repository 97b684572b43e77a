#include "launch/ranks/job.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "base/host.h"
#include "launch/ranks/rank_environment.h"
#include "launch/system/message.h"
#include "launch/system/poller.h"

namespace tarantella::launch {
namespace {

// The longest wait while a time limit runs. If one takes twice as long, something had stopped the launcher.
constexpr Duration kLongestWait = 200ms;

}  // namespace

Job::Job(const LocalJobSpec& spec, const JobResources& resources)
    : spec_(spec),
      resources_(resources),
      ranks_(spec, resources),
      streams_(spec.placement.ranks, spec.first_rank, spec.options, drops_startup_lines(spec.environment),
               resources.logs, resources.frontend),
      report_reader_(spec.placement.ranks, spec.first_rank),
      shutdown_(spec.options.grace_seconds),
      all_joined_(!spec.has_ranks_elsewhere()) {}

JobResult Job::run() {
  start_error_ = start();
  if (!start_error_.ok()) apply(shutdown_.on_start_failure(now()));
  for (apply_next_action(); !finished(); apply_next_action()) wait();
  JobResult result = conclude();
  const bool hurried = shutdown_.interrupted_by() != 0;
  result.progressed = progressed_;
  result.code = resources_.frontend.finish(result.code, result.message, resources_.signals, hurried);
  return result;
}

Status Job::start() {
  Result<ReportPipe> pipe = ReportPipe::open();
  if (!pipe.ok()) return cannot_start("the ranks", pipe.status());
  report_pipe_ = std::move(pipe).value();
  if (const Status status = ranks_.start(input_, report_pipe_); !status.ok()) return status;
  report_pipe_.close_write();
  handle_instructions();  // what came with the message to start
  return {};
}

Clock::time_point Job::now() const { return Clock::now() - paused_; }

void Job::wait() {
  Poller poller;
  poller.add(resources_.signals.fd(), POLLIN);
  poller.add(ranks_.exec_failure_fd(), POLLIN);
  poller.add(report_pipe_.read_fd(), POLLIN, [this] { read_reports(); });
  resources_.frontend.watch(poller, [this] { handle_instructions(); });
  if (spec_.placement.ranks > 1 && spec_.options.shows_warnings() && resources_.frontend.shares_stdio()) {
    poller.add(input_.watched(), POLLIN, [this] {
      if (input_.has_data())
        streams_.put_message(
            "WARNING: stdin is a pipe with data, which only rank 0 can read; redirect a file (< file) for "
            "all ranks to read it, or < /dev/null, as in the loop of a shell, for none");
    });
  }
  streams_.watch(ranks_.processes(), poller);
  for (Process& rank : ranks_.processes()) {
    if (!ranks_.awaits_remaining_processes(rank) || shutdown_.killing())
      poller.add(rank.pidfd(), POLLIN, [this, &rank] { reap(rank); });
  }
  const int timeout = shutdown_.timeout_ms(now());
  const bool counts = timeout >= 0;
  const auto began = Clock::now();
  const bool ready = poller.wait(counts ? std::min(timeout, static_cast<int>(kLongestWait / 1ms))
                                        : resources_.frontend.heartbeat_interval_ms());
  check_frontend();
  if (counts) paused_ += std::max(Clock::now() - began - 2 * kLongestWait, Duration::zero());
  if (!ready) return;

  // Read before the ends of ranks: a rank that cannot exec reports it before it ends, and a signal explains an end.
  read_exec_failure();
  while (const auto event = resources_.signals.next()) {
    const bool is_user_signal = event->number == SIGUSR1 || event->number == SIGUSR2;
    if (!is_user_signal || spec_.heeds_user_signals) handle_signal(*event);
  }
  poller.handle();
  for (Process* rank : ranks_.ranks_with_remaining_processes()) reap(*rank);
  OrphanReaper::reap(ranks_.running());
}

void Job::apply_next_action() {
  const size_t running = ranks_.running().size();
  if (running == 0 && !cleaned_up_) clean_up();
  apply(shutdown_.next_action(running, now()));
}

bool Job::finished() const {
  return shutdown_.given_up(now()) || (ranks_.running().empty() && resources_.frontend.idle());
}

void Job::apply(const Shutdown::Action& action) {
  switch (action.kind) {
    case Shutdown::Action::Kind::kNone:
      return;
    case Shutdown::Action::Kind::kStop:
      return ranks_.stop(shutdown_.signal_sent(), action.spare_rank_0, action.to_process_alone);
    case Shutdown::Action::Kind::kMarkSignalled:
      return ranks_.mark_remaining_processes_signalled();
    case Shutdown::Action::Kind::kKill:
      break;
  }
  std::vector<int> killed;
  for (const Process& rank : ranks_.processes()) {
    if (rank.alive()) killed.push_back(spec_.first_rank + rank.rank());
  }
  if (!killed.empty() && !action.reason.empty()) {
    streams_.put_message(
        text("sent SIGKILL to rank", killed.size() > 1 ? "s " : " ", ranges(killed), ": ", action.reason));
  }
  ranks_.kill();
}

void Job::terminate_ranks() { apply(shutdown_.terminate(ranks_.running().size(), now())); }

void Job::handle_instructions() {
  for (const Frontend::Instruction& instruction : resources_.frontend.instructions()) {
    const int number = instruction.signal.number;
    if (instruction.kind == Frontend::Instruction::Kind::kRankStatus) {
      receive_rank_status(instruction.states);
    } else if (instruction.kind == Frontend::Instruction::Kind::kEnd) {
      termination_requested_ = true;
    } else if (number == SIGTSTP || number == SIGCONT) {
      ranks_.signal_process_groups(number == SIGTSTP ? SIGSTOP : SIGCONT);
    } else {
      handle_signal(instruction.signal);
    }
  }
  if (termination_requested_ || resources_.frontend.lost()) terminate_ranks();
}

void Job::check_frontend() {
  resources_.frontend.heartbeat();
  if (resources_.frontend.lost()) terminate_ranks();
}

void Job::handle_signal(const Signals::Event& event) {
  if (auto lost = resources_.frontend.lost_by_signal(event.number)) {
    frontend_loss_ = std::move(lost);
    return terminate_ranks();
  }
  switch (event.number) {
    case SIGCHLD:
      return;  // it only wakes the loop
    case SIGTSTP: {
      const auto began = Clock::now();
      ranks_.suspend(event.from_terminal);
      paused_ += Clock::now() - began;
      return;
    }
    case SIGUSR1:
    case SIGUSR2:
      return ranks_.signal_processes(event.number);
    default:
      return apply(shutdown_.on_signal(event, ranks_.running().size(), now()));
  }
}

void Job::read_exec_failure() {
  const std::optional<ExecFailure> failure = ranks_.exec_failure();
  if (!failure || exec_failure_) return;
  exec_failure_ = failure;
  apply(shutdown_.on_start_failure(now()));
}

void Job::read_reports() {
  if (report_pipe_.read_fd() < 0) return;
  for (const Report& report : report_reader_.add(report_pipe_.read_some())) {
    if (report.kind == Report::Kind::kNote) {
      const bool seen = report.rank == 0 || spec_.options.shows_all_errors();
      for (const std::string& line : shown_.lines_for(report, seen)) streams_.put_message(line);
      continue;
    }
    if (report.kind == Report::Kind::kStacks) {
      streams_.put_message(report.text);
      continue;
    }
    if (report.kind == Report::Kind::kJoin) {
      resources_.rank_status.set_joined(report.rank);
      send_rank_status();
      continue;
    }
    if (report.kind == Report::Kind::kProgress) {
      progressed_ = true;
      resources_.frontend.report_progress();
      continue;
    }
    const Process& rank = ranks_.processes()[static_cast<size_t>(report.rank - spec_.first_rank)];
    if (!rank.alive() || !shutdown_.is_before_stop()) continue;
    failures_.add(report);
    if (report.kind == Report::Kind::kFailed)
      shutdown_.on_failure_report({report.rank, rank.pid(), {false, report.code}}, now());
  }
}

void Job::send_rank_status() {
  if (all_joined_) return;
  std::vector<int> states;
  for (int rank = 0; rank < spec_.placement.ranks; ++rank)
    states.push_back(resources_.rank_status.state(spec_.first_rank + rank));
  resources_.frontend.send_rank_status(states);
}

void Job::receive_rank_status(const std::vector<int>& states) {
  const int end = spec_.first_rank + spec_.placement.ranks;
  all_joined_ = true;
  for (int rank = 0; rank < static_cast<int>(states.size()); ++rank) {
    if (rank < spec_.first_rank || rank >= end)
      resources_.rank_status.set_state(rank, states[static_cast<size_t>(rank)]);
    all_joined_ = all_joined_ && resources_.rank_status.has_joined(rank);
  }
}

void Job::reap(Process& rank) {
  read_reports();  // what the rank has reported comes before its end
  const std::optional<Exit> exit = rank.ended();
  if (!exit) return;
  shutdown_.on_exit({spec_.first_rank + rank.rank(), rank.pid(), *exit}, now());
  const int forwarded = shutdown_.interrupted_by() != 0 ? shutdown_.signal_sent() : 0;
  if (!shutdown_.killing() && ranks_.signal_remaining_processes(rank, *exit, forwarded)) return;
  ranks_.reap(rank, *exit);
  send_rank_status();
  streams_.drain(rank);
}

void Job::clean_up() {
  cleaned_up_ = true;
  const std::set<pid_t> stuck = ranks_.running();
  resources_.orphan_reaper.await_resource_trackers(stuck, 0);
  const Deadline deadline = Deadline::after(1s);
  while (resources_.orphan_reaper.sweep(stuck) > 0 && !deadline.passed()) ::usleep(1000);
  resources_.watchdog.stop();
}

JobResult Job::conclude() {
  for (const Process& rank : ranks_.processes()) {
    if (!rank.alive()) continue;
    rank.signal(SIGKILL);
    streams_.put_message(
        text("rank ", spec_.first_rank + rank.rank(), " (pid ", rank.pid(),
             ") does not end after SIGKILL: it is stuck in the kernel (storage or a driver?), or "
             "its machine is overloaded"));
  }
  if (!cleaned_up_) clean_up();
  if (frontend_loss_ && !shutdown_.root_cause().failed())
    return {.code = kPeerFailed,
            .message = message_line(*frontend_loss_),
            .failure = FailureKind::kHost,
            .cause = *frontend_loss_};
  return result_of(
      {.start_error = start_error_,
       .exec_failure = exec_failure_,
       .program = spec_.command.program,
       .shutdown = shutdown_,
       .failures = failures_,
       .stderr_excerpt = [this](int rank) { return streams_.stderr_excerpt(rank - spec_.first_rank); },
       .shows_all_errors = spec_.options.shows_all_errors(),
       .host = host_name(),
       .has_ranks_elsewhere = spec_.has_ranks_elsewhere()});
}

}  // namespace tarantella::launch
