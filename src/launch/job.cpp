#include "launch/job.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <functional>
#include <set>
#include <system_error>

#include "launch/say.h"

namespace tarantella::launch {
namespace {

// After a key (Ctrl-C, Ctrl-\), when SIGKILL follows; after other signals, time for a checkpoint; after a failure, when
// it follows the last moment for SIGTERM: ranks of which one is missing have nothing to save.
constexpr Duration kKillAfterKey = 1500ms;
constexpr Duration kKillAfter = 30s;
constexpr Duration kKillAfterDeadline = 500ms;
// A process that even SIGKILL does not end is stuck inside the kernel; nobody can do more.
constexpr Duration kGiveUpAfter = 5s;
// Some senders signal a process twice at once (timeout(1): it and its group); a second Ctrl-C comes later.
constexpr Duration kSameKeystroke = 100ms;
// Of a rank that has ended. A pipe holds at most 1 MiB; whoever goes on writing into it does not keep us here.
constexpr int kMostReads = 256;
constexpr size_t kMostNotes = 100;
// At the end of the job, for a reader of stderr who reads nothing; a signal ends it, too.
constexpr int kPatienceMs = 10 * 60 * 1000;
constexpr int kPatienceAfterSignalMs = 2000;

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// Asks for an end, but leaves time to save work.
bool leaves_time(int number) { return number == SIGTERM || number == SIGHUP; }

bool on_terminal() { return ::isatty(STDIN_FILENO) || ::isatty(STDOUT_FILENO) || ::isatty(STDERR_FILENO); }

}  // namespace

Job::Job(const Placement& placement, const Options& options, const Command& command,
         const std::vector<std::vector<std::string>>& environments, Signals& signals, const Orphans& orphans,
         Guard& guard, const runtime::Ended& ended)
    : placement_(placement),
      options_(options),
      command_(command),
      environments_(environments),
      signals_(signals),
      orphans_(orphans),
      guard_(guard),
      ended_(ended),
      // On a terminal the master stays in the launcher's group, which the shell puts in the foreground and in
      // the background: so it may read the terminal, and is stopped and resumed as a job of the shell.
      master_in_own_group_(!on_terminal()),
      report_reader_(placement.ranks),
      stdout_(STDOUT_FILENO),
      stderr_(STDERR_FILENO) {}

int Job::run() {
  start_error_ = start();
  if (!start_error_.ok()) kill_all();
  for (advance(); !finished(); advance()) wait();
  const int code = conclude();
  write_rest();
  return code;
}

Status Job::start() {
  null_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_.valid()) return Status::system("open /dev/null", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return Status::system("pipe2", errno);
  failure_read_ = Fd(ends[0]);
  failure_write_ = Fd(ends[1]);
  Result<ReportPipe> report_pipe = ReportPipe::open();
  if (!report_pipe.ok()) return report_pipe.status();
  report_pipe_ = std::move(report_pipe).value();
  ranks_.reserve(static_cast<size_t>(placement_.ranks));
  for (int rank = 0; rank < placement_.ranks; ++rank) {
    std::vector<std::string> environment = environments_[static_cast<size_t>(rank)];
    environment.push_back(report_pipe_.variable());
    const Fd file = rank > 0 ? input_.copy() : Fd();
    SpawnRequest request = request_for(rank);
    if (file.valid()) {
      request.in = Stream::kGiven;
      request.in_fd = file.get();
    }
    request.environment = &environment;
    Result<Process> process = Process::spawn(request);
    if (!process.ok()) {
      return {Code::kSystem,
              text("cannot start rank ", rank, " of ", placement_.ranks, ": ", process.status().message(),
                   "; use fewer ranks or raise the limits (ulimit -u, -n)")};
    }
    ranks_.push_back(Rank{std::move(process).value(), {}, LineMarker(rank), LineMarker(rank)});
    if (ranks_.back().process.own_group()) guard_.set_group(rank, ranks_.back().process.pid());
  }
  failure_write_ = Fd();
  report_pipe_.close_write();
  return {};
}

SpawnRequest Job::request_for(int rank) const {
  const bool master = rank == 0;
  SpawnRequest request;
  request.rank = rank;
  request.command = &command_;
  request.cpus = placement_.cores.empty() ? nullptr : &placement_.cores[static_cast<size_t>(rank)].cpus;
  request.inherited = &signals_.inherited();
  request.own_group = !master || master_in_own_group_;
  request.in = master ? Stream::kInherit : Stream::kDrop;
  request.out = options_.output_on_all_devices ? Stream::kPipe : master ? Stream::kInherit : Stream::kDrop;
  const bool show_all_errors = options_.output_on_all_devices || options_.log_on_all_devices;
  request.err = master && !show_all_errors ? Stream::kInherit : Stream::kPipe;
  request.null_fd = null_.get();
  request.report_fd = report_pipe_.write_fd();
  request.failure_fd = failure_write_.get();
  return request;
}

void Job::wait() {
  // Only what is open: poll(2) refuses more entries than this process may have files, even negative ones.
  std::vector<pollfd> fds;
  std::vector<std::function<void()>> handlers;
  const auto watch = [&](int fd, short events, std::function<void()> handler) {
    if (fd < 0) return;
    fds.push_back({fd, events, 0});
    handlers.push_back(std::move(handler));
  };
  watch(signals_.fd(), POLLIN, [] {});
  watch(failure_read_.get(), POLLIN, [] {});
  watch(report_pipe_.read_fd(), POLLIN, [this] { read_reports(); });
  if (placement_.ranks > 1 && options_.log_level.value_or("WARNING") != "ERROR") {
    watch(input_.watched(), POLLIN, [this] {
      if (input_.has_come())
        say("WARNING: stdin is a pipe with data: only rank 0 can read it; every rank would read a file (< "
            "file)");
    });
  }
  if (!stdout_.idle()) watch(stdout_.fd(), POLLOUT, [this] { stdout_.write_some(); });
  if (!stderr_.idle()) watch(stderr_.fd(), POLLOUT, [this] { stderr_.write_some(); });
  for (Rank& rank : ranks_) {
    if (!stdout_.full()) watch(rank.process.out(), POLLIN, [&] { take(rank, false); });
    if (!stderr_.full()) watch(rank.process.err(), POLLIN, [&] { take(rank, true); });
    if (!rank.leaves_group || phase_ == Phase::kKilling)
      watch(rank.process.pidfd(), POLLIN, [&] { collect(rank); });
  }
  if (::poll(fds.data(), fds.size(), timeout_ms()) <= 0) return;

  // Before the ranks: a rank that could not exec says so before it ends, and one that a signal ended did not
  // fail.
  read_exec_failure();
  while (const auto event = signals_.next()) handle_signal(*event);
  for (size_t index = 0; index < fds.size(); ++index) {
    if (fds[index].revents != 0) handlers[index]();
  }
  for (Rank& rank : ranks_) {
    if (rank.leaves_group) collect(rank);
  }
  Orphans::collect(living());
}

void Job::read_exec_failure() {
  ExecFailure failure;
  const ssize_t bytes = failure_read_.valid() ? ::read(failure_read_.get(), &failure, sizeof failure) : -1;
  if (bytes == 0) failure_read_ = Fd();
  if (bytes != static_cast<ssize_t>(sizeof failure) || exec_failure_) return;
  exec_failure_ = failure;
  kill_all();
}

void Job::read_reports() {
  if (report_pipe_.read_fd() < 0) return;
  for (const Report& report : report_reader_.add(report_pipe_.read_some())) {
    const Rank& rank = ranks_[static_cast<size_t>(report.rank)];
    if (report.kind == Report::Kind::kNote) {
      const bool seen = report.rank == 0 || options_.output_on_all_devices || options_.log_on_all_devices;
      if (notes_.size() == kMostNotes || !notes_.insert(report.text).second) continue;
      if (!seen) say(text("rank ", report.rank, ": ", printable(report.text)));
      if (notes_.size() == kMostNotes)
        say(text("no more such lines of other ranks than these ", kMostNotes, " are shown"));
    } else if (rank.process.alive() && (phase_ == Phase::kRunning || phase_ == Phase::kFailing)) {
      failures_.add(report);
      if (report.kind == Report::Kind::kFailed)
        first_cause_.reported({report.rank, rank.process.pid(), {false, report.code}}, Clock::now());
    }
  }
}

void Job::handle_signal(const Signals::Event& event) {
  if (event.number == SIGCHLD) return;  // it was to wake us
  if (event.number == SIGTSTP) return suspend(event.from_terminal);
  if (event.number == SIGUSR1 || event.number == SIGUSR2) {
    for (const Rank& rank : ranks_) {
      if (rank.process.alive()) rank.process.signal_alone(event.number);
    }
    return;
  }
  const auto now = Clock::now();
  // Batch systems and service managers signal every process, in any order: ranks may have ended of it already.
  const bool others_may_save = interrupted_by_ == 0 && leaves_time(event.number) && phase_ != Phase::kKilling;
  if (phase_ == Phase::kRunning || others_may_save) {
    interrupted_by_ = event.number;
    interrupted_at_ = now;
    if (phase_ == Phase::kFailing) stopped_others_ = has_others();
    if (phase_ == Phase::kStopping && stop_signal_ == event.number) {  // they have got it
      for (Rank& rank : ranks_) {
        if (rank.leaves_group) rank.told.merge(orphans_.in_group(rank.process.group(), living()));
      }
      stopped_at_ = now;
      kill_at_ = now + grace_after(event.number);
    } else {
      stop(event.number, now + grace_after(event.number), event.from_terminal);
    }
  } else if (interrupted_by_ == 0 || (event.number == SIGINT && now - interrupted_at_ > kSameKeystroke)) {
    kill_all_and_say(text("signal ", signal_name(event.number), " came while the job was ending"));
  }
}

void Job::suspend(bool from_terminal) {
  const auto tell = [&](int number) {
    for (const Rank& rank : ranks_) {
      const bool knows = from_terminal && !rank.process.own_group();
      if (rank.process.alive() && !knows) rank.process.signal(number);
    }
  };
  tell(SIGSTOP);
  sigset_t stop_key, before;
  sigemptyset(&stop_key);
  sigaddset(&stop_key, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop_key, &before);  // stops here, unless no shell is there to resume it
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  tell(SIGCONT);
}

void Job::take(Rank& rank, bool is_err) {
  const int fd = is_err ? rank.process.err() : rank.process.out();
  char buffer[64 * 1024];
  const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes <= 0) {
    is_err ? rank.process.close_err() : rank.process.close_out();
    return;
  }
  const std::string_view data(buffer, static_cast<size_t>(bytes));
  if (!is_err) {
    stdout_.put(rank.out.add(data));
  } else if (options_.output_on_all_devices || options_.log_on_all_devices) {
    stderr_.put(rank.err.add(data));
  } else {
    rank.tail.append(data);
  }
}

void Job::drain(Rank& rank) {
  for (const bool is_err : {false, true}) {
    for (int reads = 0; reads < kMostReads; ++reads) {
      const int fd = is_err ? rank.process.err() : rank.process.out();
      pollfd readable{fd, POLLIN, 0};
      if (fd < 0 || ::poll(&readable, 1, 0) <= 0) break;
      take(rank, is_err);
    }
  }
  rank.process.close_out();
  rank.process.close_err();
  stdout_.put(rank.out.finish());
  stderr_.put(rank.err.finish());
}

void Job::collect(Rank& rank) {
  read_reports();  // what it has said comes first
  const std::optional<Exit> exit = rank.process.ended();
  if (!exit) return;
  if (phase_ == Phase::kRunning || phase_ == Phase::kFailing) {
    first_cause_.ended({rank.process.rank(), rank.process.pid(), *exit}, Clock::now());
  }
  rank.leaves_group = leaves_group(rank, *exit);
  if (rank.leaves_group) return;
  guard_.set_group(rank.process.rank(), 0);
  rank.process.collect();
  ended_.tell(rank.process.rank(), exit->code());
  if (!rank.process.own_group()) {
    orphans_.sweep(living(), ::getpgrp());
  }
  drain(rank);
}

/// Whether a signal that leaves time has ended a rank, but not all that it had started: a shell around the Python that
/// is to save its work. Those then get the signal, but not their own children, which they may need for that.
bool Job::leaves_group(Rank& rank, const Exit& exit) {
  if (phase_ == Phase::kKilling || !exit.by_signal || !leaves_time(exit.value)) return false;
  const std::set<pid_t> left = orphans_.in_group(rank.process.group(), living());
  for (const pid_t pid : left) {
    if (interrupted_by_ != 0 && rank.told.insert(pid).second) ::kill(pid, stop_signal_);
  }
  return !left.empty();
}

void Job::advance() {
  const auto now = Clock::now();
  if (phase_ == Phase::kRunning && first_cause_.failed()) phase_ = Phase::kFailing;
  if (phase_ == Phase::kFailing) {
    const auto deadline = first_cause_.deadline();
    if (first_cause_.settled() || now >= deadline) {
      stopped_others_ = has_others();
      stop(SIGTERM, std::max(now, deadline) + kKillAfterDeadline, false);
    }
  }
  if (living().empty() && !cleaned_up_) {
    clean_up();
    kill_at_ = std::min(kill_at_, now);
  }
  if (phase_ == Phase::kStopping && now >= kill_at_) {
    const double waited = std::round(in_seconds(now - stopped_at_) * 10) / 10;
    kill_all_and_say(text("still running ", waited, " s after signal ", signal_name(stop_signal_)));
  }
}

Duration Job::grace_after(int number) const {
  if (options_.grace_seconds) return from_seconds(*options_.grace_seconds);
  return number == SIGINT || number == SIGQUIT ? kKillAfterKey : kKillAfter;
}

void Job::stop(int number, Clock::time_point kill_at, bool spare_master) {
  phase_ = Phase::kStopping;
  stop_signal_ = number;
  stopped_at_ = Clock::now();
  kill_at_ = kill_at;
  const bool to_save_work = leaves_time(interrupted_by_);
  for (const Rank& rank : ranks_) {
    // What was typed on the terminal has reached a master in the foreground group already.
    const bool knows = spare_master && !rank.process.own_group();
    if (!rank.process.alive() || knows) continue;
    to_save_work ? rank.process.signal_alone(number) : rank.process.signal(number);
    rank.process.signal(SIGCONT);  // one that is stopped (SIGSTOP) would not hear of it
  }
}

void Job::kill_all_and_say(const std::string& why) {
  std::vector<int> numbers;
  for (const Rank& rank : ranks_) {
    if (rank.process.alive()) numbers.push_back(rank.process.rank());
  }
  if (!numbers.empty())
    say(text("sent SIGKILL to rank", numbers.size() > 1 ? "s " : " ", ranges(numbers), ": ", why));
  kill_all();
}

void Job::kill_all() {
  phase_ = Phase::kKilling;
  kill_at_ = Clock::now();
  for (const Rank& rank : ranks_) {
    if (rank.process.alive()) rank.process.signal(SIGKILL);
  }
}

std::set<pid_t> Job::living() const {
  std::set<pid_t> pids;
  for (const Rank& rank : ranks_) {
    if (rank.process.alive()) pids.insert(rank.process.pid());
  }
  return pids;
}

void Job::clean_up() {
  cleaned_up_ = true;
  const std::set<pid_t> stuck = living();
  const Deadline deadline = Deadline::after(1s);
  while (orphans_.sweep(stuck) > 0 && !deadline.passed()) ::usleep(1000);
  guard_.dismiss();
}

bool Job::finished() const {
  const bool ending = phase_ == Phase::kStopping || phase_ == Phase::kKilling;
  if (ending && Clock::now() >= kill_at_ + kGiveUpAfter) return true;
  return living().empty() && stdout_.idle() && stderr_.idle();
}

int Job::timeout_ms() const {
  Clock::time_point next;
  switch (phase_) {
    case Phase::kRunning:
      return -1;
    case Phase::kFailing:
      next = first_cause_.deadline();
      break;
    case Phase::kStopping:
      next = kill_at_;
      break;
    case Phase::kKilling:
      next = kill_at_ + kGiveUpAfter;
      break;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::max<long>(0, left));
}

int Job::stopped_by() const {
  return start_error_.ok() && !exec_failure_ && !blames_a_rank() ? interrupted_by_ : 0;
}

/// A rank failed, and not of the signal that then stopped the job.
bool Job::blames_a_rank() const {
  return first_cause_.failed() && first_cause_.cause().exit.code() != 128 + interrupted_by_;
}

/// Other ranks than the one that failed still run.
bool Job::has_others() const { return living().size() > (first_cause_.cause().ended ? 0 : 1); }

/// Through the sink: a reader who is slow, or has stopped, must not keep the launcher from its ranks.
void Job::say(const std::string& line) { stderr_.put(as_said(line)); }

/// What the sink still holds at the end.
void Job::write_rest() {
  while (!stderr_.idle()) {
    pollfd fds[] = {{stderr_.fd(), POLLOUT, 0}, {signals_.fd(), POLLIN, 0}};
    if (::poll(fds, 2, interrupted_by_ == 0 ? kPatienceMs : kPatienceAfterSignalMs) <= 0) return;
    if (fds[0].revents != 0) {
      stderr_.write_some();
    } else if (const auto event = signals_.next(); event && event->number != SIGCHLD) {
      return;
    }
  }
}

int Job::conclude() {
  for (const Rank& rank : ranks_) {
    if (!rank.process.alive()) continue;
    say(text("rank ", rank.process.rank(), " (pid ", rank.process.pid(),
             ") does not end although it was killed: it is stuck inside the kernel (storage, driver?)"));
  }
  if (!cleaned_up_) clean_up();

  if (!start_error_.ok()) {
    say(start_error_.message());
    return kLaunchError;
  }
  if (exec_failure_) {
    std::string reason = std::generic_category().message(exec_failure_->error);
    if (exec_failure_->error == ENOENT)
      reason += " (does its first line, #!, name a program that is not there?)";
    say(text("cannot run '", printable(command_.program), "': ", reason));
    return kCannotRun;
  }
  if (stopped_by() != 0) {
    say(text("stopped by signal ", signal_name(interrupted_by_)));
    return 128 + interrupted_by_;
  }
  if (!first_cause_.failed()) return 0;
  const FirstCause::Ending& cause = first_cause_.cause();
  stderr_.put(last_words(cause));
  if (cause.rank != 0 && ranks_[static_cast<size_t>(cause.rank)].tail.last_words().ends_with(
                             "EOFError: EOF when reading a line\n")) {
    say("only rank 0 reads stdin that is a terminal or a pipe; every rank would read a file (< file)");
  }
  const Report* report = failures_.find(cause.rank, Report::Kind::kFailed);
  say(describe(cause, {.host = host_name(),
                       .same_error = failures_.more(cause.rank),
                       .stopped_others = stopped_others_,
                       .held_by = report == nullptr ? "" : report->held_by}));
  return cause.exit.code();
}

std::string Job::last_words(const FirstCause::Ending& cause) const {
  if (const Report* lost = failures_.find(cause.rank, Report::Kind::kLost); lost != nullptr)
    return lost->text;
  const Report* failed = failures_.find(cause.rank, Report::Kind::kFailed);
  const bool shown = cause.rank == 0 || options_.output_on_all_devices || options_.log_on_all_devices ||
                     failures_.same(0, cause.rank);
  if (shown) return "";
  if (failed != nullptr && !failed->text.empty()) return failed->text;
  return first_cause_.master_spoke() ? "" : ranks_[static_cast<size_t>(cause.rank)].tail.last_words();
}

}  // namespace tarantella::launch
