#include "launch/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launch/proc.h"

namespace tarantella::launch {
namespace {

bool on_terminal() { return ::isatty(STDIN_FILENO) || ::isatty(STDOUT_FILENO) || ::isatty(STDERR_FILENO); }

}  // namespace

Ranks::Ranks(const JobDescription& job, const Inherited& inherited, const Orphans& orphans, Guard& guard,
             const runtime::Attendance& attendance)
    : job_(job),
      inherited_(inherited),
      orphans_(orphans),
      guard_(guard),
      attendance_(attendance),
      // On a terminal the master stays in the launcher's group, which the shell moves to the foreground and the
      // background: so it can read the terminal, and the shell stops and resumes it.
      master_in_own_group_(!on_terminal()) {}

Status Ranks::start(const Input& input, const ReportPipe& reports) {
  null_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_.valid()) return cannot_start("the ranks", Status::system("open /dev/null", errno));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return cannot_start("the ranks", Status::system("pipe2", errno));
  }
  failure_read_ = Fd(ends[0]);
  failure_write_ = Fd(ends[1]);
  const int ranks = job_.placement.ranks;
  processes_.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> environment = job_.environments[static_cast<size_t>(rank)];
    environment.push_back(reports.variable());
    const Fd file = rank > 0 ? input.copy() : Fd();
    SpawnRequest request = request_for(rank, reports);
    if (file.valid()) {
      request.in = Stream::kGiven;
      request.in_fd = file.get();
    }
    request.environment = &environment;
    Result<Process> process = Process::spawn(request);
    if (!process.ok()) {
      return cannot_start(text("rank ", job_.first + rank, " of ", ranks), process.status());
    }
    processes_.push_back(std::move(process).value());
    job_.record.add_rank(processes_.back().pid());
    if (processes_.back().own_group()) guard_.set_group(rank, processes_.back().pid());
  }
  failure_write_ = Fd();
  return {};
}

SpawnRequest Ranks::request_for(int rank, const ReportPipe& reports) const {
  const bool master = job_.first + rank == 0;
  const bool pipes = job_.head != nullptr;
  const Placement& placement = job_.placement;
  SpawnRequest request;
  request.rank = rank;
  request.command = &job_.command;
  request.cpus = placement.cores.empty() ? nullptr : &placement.cores[static_cast<size_t>(rank)].cpus;
  request.memory = placement.memory.empty() ? nullptr : &placement.memory[static_cast<size_t>(rank)];
  request.warns = job_.options.shows_warnings();
  request.inherited = &inherited_;
  request.own_group = !master || master_in_own_group_;
  request.in = master && !pipes ? Stream::kInherit : Stream::kDrop;
  const Options& options = job_.options;
  request.out = options.output_on_all_devices || options.log_dir || (pipes && master) ? Stream::kPipe
                : master                                                              ? Stream::kInherit
                                                                                      : Stream::kDrop;
  const bool as_it_is = master && !pipes && !options.shows_all_errors() && !options.log_dir;
  request.err = !as_it_is                 ? Stream::kPipe
                : !job_.drops_start_lines ? Stream::kInherit
                : ::isatty(STDERR_FILENO) ? Stream::kTerminal
                                          : Stream::kPipe;
  request.null_fd = null_.get();
  request.report_fd = reports.write_fd();
  if (rank == 0) request.kept_fd = job_.leader_fd;
  request.failure_fd = failure_write_.get();
  return request;
}

std::optional<ExecFailure> Ranks::exec_failure() {
  ExecFailure failure;
  const ssize_t bytes = failure_read_.valid() ? ::read(failure_read_.get(), &failure, sizeof failure) : -1;
  if (bytes == 0) failure_read_ = Fd();
  return bytes == static_cast<ssize_t>(sizeof failure) ? std::optional(failure) : std::nullopt;
}

std::set<pid_t> Ranks::living() const {
  std::set<pid_t> pids;
  for (const Process& rank : processes_) {
    if (rank.alive()) pids.insert(rank.pid());
  }
  return pids;
}

void Ranks::kill() {
  for (const Process& rank : processes_) {
    if (rank.alive()) rank.signal_alone(SIGKILL);  // the rest of its group goes when it is collected
  }
}

void Ranks::stop(int number, bool spare_master, bool to_process_alone) {
  for (const Process& rank : processes_) {
    const bool knows = spare_master && !rank.own_group();
    if (!rank.alive() || knows) continue;
    to_process_alone ? rank.signal_alone(number) : rank.signal(number);
    rank.signal(SIGCONT);
  }
}

void Ranks::forward(int number) const {
  for (const Process& rank : processes_) {
    if (rank.alive()) rank.signal_alone(number);
  }
}

void Ranks::tell(int number) const {
  for (const Process& rank : processes_) {
    if (rank.alive()) rank.signal(number);
  }
}

void Ranks::suspend(bool from_terminal) const {
  const auto tell = [&](int number) {
    for (const Process& rank : processes_) {
      const bool knows = from_terminal && !rank.own_group();
      if (rank.alive() && !knows) rank.signal(number);
    }
  };
  tell(SIGSTOP);
  stop_until_resumed();
  tell(SIGCONT);
}

bool Ranks::leaves_group(const Process& rank, const Exit& exit, int number) {
  std::set<pid_t>& told = leaving_[rank.rank()];
  const bool had_time = exit.by_signal && leaves_time(exit.value);
  std::set<pid_t> left = had_time ? orphans_.in_group(rank.group(), living()) : std::set<pid_t>();
  std::erase_if(left, is_resource_tracker);
  for (const pid_t pid : left) {
    if (number != 0 && told.insert(pid).second) ::kill(pid, number);
  }
  if (left.empty()) leaving_.erase(rank.rank());
  return !left.empty();
}

std::vector<Process*> Ranks::leaving() {
  std::vector<Process*> all;
  for (const auto& [rank, told] : leaving_) all.push_back(&processes_[static_cast<size_t>(rank)]);
  return all;
}

void Ranks::count_as_told() {
  for (auto& [rank, told] : leaving_) {
    told.merge(orphans_.in_group(processes_[static_cast<size_t>(rank)].group(), living()));
  }
}

void Ranks::collect(Process& rank, const Exit& exit) {
  leaving_.erase(rank.rank());
  guard_.set_group(rank.rank(), 0);
  orphans_.await_resource_trackers(living(), rank.group());
  rank.collect();
  attendance_.tell_end(job_.first + rank.rank(), exit.code());
  if (!rank.own_group()) orphans_.sweep(living(), ::getpgrp());
}

}  // namespace tarantella::launch
