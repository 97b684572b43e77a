#include "launch/job.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include "base/host.h"
#include "launch/poller.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

// The longest wait while time counts. If one takes twice as long, something had stopped the launcher.
constexpr Duration kLook = 200ms;
constexpr Duration kLookAtHead = 1s;

}  // namespace

Job::Job(const JobDescription& job, Signals& signals, const Orphans& orphans, Guard& guard,
         const runtime::Attendance& attendance)
    : job_(job),
      signals_(signals),
      orphans_(orphans),
      guard_(guard),
      attendance_(attendance),
      ranks_(job, signals.inherited(), orphans, guard, attendance),
      streams_(job.placement.ranks, job.first, job.options, job.drops_start_lines, job.logs, job.head),
      report_reader_(job.placement.ranks, job.first),
      shutdown_(job.options.grace_seconds) {}

Verdict Job::run() {
  start_error_ = start();
  if (!start_error_.ok()) obey(shutdown_.cannot_start(now()));
  for (advance(); !finished(); advance()) wait();
  Verdict verdict = conclude();
  if (job_.head != nullptr) return verdict;
  streams_.put_error(verdict.words);
  streams_.write_rest(signals_, shutdown_.interrupted_by() != 0);
  verdict.code = code_with_output(verdict.code, streams_.output_error());
  return verdict;
}

Status Job::start() {
  Result<ReportPipe> pipe = ReportPipe::open();
  if (!pipe.ok()) return cannot_start("the ranks", pipe.status());
  report_pipe_ = std::move(pipe).value();
  if (const Status status = ranks_.start(input_, report_pipe_); !status.ok()) return status;
  report_pipe_.close_write();
  if (job_.head != nullptr) read_head();  // what came with the order to start
  return {};
}

Clock::time_point Job::now() const { return Clock::now() - stood_still_; }

void Job::wait() {
  Poller poller;
  poller.add(signals_.fd(), POLLIN);
  poller.add(ranks_.exec_failure_fd(), POLLIN);
  poller.add(report_pipe_.read_fd(), POLLIN, [this] { read_reports(); });
  if (job_.head != nullptr) job_.head->watch(poller, [this] { read_head(); });
  if (job_.placement.ranks > 1 && job_.options.shows_warnings() && job_.head == nullptr) {
    poller.add(input_.watched(), POLLIN, [this] {
      if (input_.has_come())
        streams_.say(
            "WARNING: stdin is a pipe with data, which only rank 0 can read; redirect a file (< file) for "
            "all ranks to read it, or < /dev/null, as in the loop of a shell, for none");
    });
  }
  streams_.watch(ranks_.processes(), poller);
  for (Process& rank : ranks_.processes()) {
    if (!ranks_.is_leaving(rank) || shutdown_.killing())
      poller.add(rank.pidfd(), POLLIN, [this, &rank] { collect(rank); });
  }
  const int timeout = shutdown_.timeout_ms(now());
  const bool counts = timeout >= 0;
  const auto began = Clock::now();
  const int at_most = job_.head == nullptr ? -1 : static_cast<int>(kLookAtHead / 1ms);
  const bool ready = poller.wait(counts ? std::min(timeout, static_cast<int>(kLook / 1ms)) : at_most);
  if (job_.head != nullptr) look_at_head();
  if (counts) stood_still_ += std::max(Clock::now() - began - 2 * kLook, Duration::zero());
  if (!ready) return;

  // Read before the ends of ranks: a rank that cannot exec reports it before it ends, and a signal explains an end.
  read_exec_failure();
  while (const auto event = signals_.next()) {
    const bool is_of_user = event->number == SIGUSR1 || event->number == SIGUSR2;
    if (!is_of_user || job_.heeds_user_signals) handle_signal(*event);
  }
  poller.handle();
  for (Process* rank : ranks_.leaving()) collect(*rank);
  Orphans::collect(ranks_.living());
}

void Job::advance() {
  const size_t living = ranks_.living().size();
  if (living == 0 && !cleaned_up_) clean_up();
  obey(shutdown_.advance(living, now()));
}

bool Job::finished() const {
  return shutdown_.given_up(now()) || (ranks_.living().empty() && streams_.idle());
}

void Job::obey(const Shutdown::Order& order) {
  switch (order.kind) {
    case Shutdown::Order::Kind::kNone:
      return;
    case Shutdown::Order::Kind::kStop:
      return ranks_.stop(shutdown_.signal_sent(), order.spare_master, order.to_process_alone);
    case Shutdown::Order::Kind::kCountAsTold:
      return ranks_.count_as_told();
    case Shutdown::Order::Kind::kKill:
      break;
  }
  std::vector<int> killed;
  for (const Process& rank : ranks_.processes()) {
    if (rank.alive()) killed.push_back(job_.first + rank.rank());
  }
  if (!killed.empty() && !order.why.empty()) {
    streams_.say(
        text("sent SIGKILL to rank", killed.size() > 1 ? "s " : " ", ranges(killed), ": ", order.why));
  }
  ranks_.kill();
}

void Job::abandon() { obey(shutdown_.abandon(ranks_.living().size(), now())); }

void Job::read_head() {
  for (const Message& message : job_.head->read()) {
    const std::optional<Signals::Event> event = signal_in(message);
    if (event && event->number == SIGTSTP) {
      ranks_.tell(SIGSTOP);
    } else if (event && event->number == SIGCONT) {
      ranks_.tell(SIGCONT);
    } else if (event) {
      handle_signal(*event);
    }
    if (const auto states = states_in(message)) hear_attendance(*states);
    abandoned_ = abandoned_ || message.kind == Message::Kind::kEnd;
  }
  if (abandoned_ || job_.head->closed()) abandon();
}

void Job::look_at_head() {
  if (Clock::now() - told_alive_ >= kLookAtHead) {
    told_alive_ = Clock::now();
    job_.head->send(Message::Kind::kAlive);
  }
  job_.head->check();
  if (job_.head->closed()) abandon();
}

void Job::handle_signal(const Signals::Event& event) {
  if (job_.head != nullptr && event.number == SIGHUP) {
    orphaned_ = true;
    return abandon();
  }
  switch (event.number) {
    case SIGCHLD:
      return;  // it only wakes the loop
    case SIGTSTP: {
      const auto began = Clock::now();
      ranks_.suspend(event.from_terminal);
      stood_still_ += Clock::now() - began;
      return;
    }
    case SIGUSR1:
    case SIGUSR2:
      return ranks_.forward(event.number);
    default:
      return obey(shutdown_.signalled(event, ranks_.living().size(), now()));
  }
}

void Job::read_exec_failure() {
  const std::optional<ExecFailure> failure = ranks_.exec_failure();
  if (!failure || exec_failure_) return;
  exec_failure_ = failure;
  obey(shutdown_.cannot_start(now()));
}

void Job::read_reports() {
  if (report_pipe_.read_fd() < 0) return;
  for (const Report& report : report_reader_.add(report_pipe_.read_some())) {
    if (report.kind == Report::Kind::kNote) {
      const bool seen = report.rank == 0 || job_.options.shows_all_errors();
      for (const std::string& line : notes_.lines_for(report, seen)) streams_.say(line);
      continue;
    }
    if (report.kind == Report::Kind::kStacks) {
      streams_.say(report.text);
      continue;
    }
    if (report.kind == Report::Kind::kJoin) {
      attendance_.tell_join(report.rank);
      tell_attendance();
      continue;
    }
    const Process& rank = ranks_.processes()[static_cast<size_t>(report.rank - job_.first)];
    if (!rank.alive() || !shutdown_.undecided()) continue;
    failures_.add(report);
    if (report.kind == Report::Kind::kFailed)
      shutdown_.reported({report.rank, rank.pid(), {false, report.code}}, now());
  }
}

void Job::tell_attendance() {
  if (!job_.is_part || all_met_) return;
  std::vector<int> states;
  for (int rank = 0; rank < job_.placement.ranks; ++rank)
    states.push_back(attendance_.state(job_.first + rank));
  job_.head->send(Message::Kind::kAttendance, content_of(states));
}

void Job::hear_attendance(const std::vector<int>& states) {
  const int end = job_.first + job_.placement.ranks;
  all_met_ = true;
  for (int rank = 0; rank < static_cast<int>(states.size()); ++rank) {
    if (rank < job_.first || rank >= end) attendance_.set_state(rank, states[static_cast<size_t>(rank)]);
    all_met_ = all_met_ && attendance_.has_joined(rank);
  }
}

void Job::collect(Process& rank) {
  read_reports();  // what the rank has reported comes before its end
  const std::optional<Exit> exit = rank.ended();
  if (!exit) return;
  shutdown_.ended({job_.first + rank.rank(), rank.pid(), *exit}, now());
  const int forwarded = shutdown_.interrupted_by() != 0 ? shutdown_.signal_sent() : 0;
  if (!shutdown_.killing() && ranks_.leaves_group(rank, *exit, forwarded)) return;
  ranks_.collect(rank, *exit);
  tell_attendance();
  streams_.drain(rank);
}

void Job::clean_up() {
  cleaned_up_ = true;
  const std::set<pid_t> stuck = ranks_.living();
  orphans_.await_resource_trackers(stuck, 0);
  const Deadline deadline = Deadline::after(1s);
  while (orphans_.sweep(stuck) > 0 && !deadline.passed()) ::usleep(1000);
  guard_.dismiss();
}

Verdict Job::conclude() {
  for (const Process& rank : ranks_.processes()) {
    if (!rank.alive()) continue;
    rank.signal(SIGKILL);
    streams_.say(text("rank ", job_.first + rank.rank(), " (pid ", rank.pid(),
                      ") does not end after SIGKILL: it is stuck in the kernel (storage or a driver?), or "
                      "its machine is overloaded"));
  }
  if (!cleaned_up_) clean_up();
  if (orphaned_ && !shutdown_.first_cause().failed()) {
    return {.code = kPeerFailed,
            .words = as_said(text("what had started the launcher on ", host_name(),
                                  " has ended; the ranks were stopped"))};
  }
  return verdict_on({.start_error = start_error_,
                     .exec_failure = exec_failure_,
                     .program = job_.command.program,
                     .shutdown = shutdown_,
                     .failures = failures_,
                     .last_words = [this](int rank) { return streams_.last_words(rank - job_.first); },
                     .shows_all_errors = job_.options.shows_all_errors(),
                     .host = host_name(),
                     .is_part = job_.is_part});
}

}  // namespace tarantella::launch
