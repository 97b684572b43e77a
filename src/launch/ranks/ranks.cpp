#include "launch/ranks/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launch/ranks/rank_environment.h"
#include "launch/system/procfs.h"

namespace tarantella::launch {
namespace {

bool on_terminal() { return ::isatty(STDIN_FILENO) || ::isatty(STDOUT_FILENO) || ::isatty(STDERR_FILENO); }

}  // namespace

Ranks::Ranks(const LocalJobSpec& spec, const JobResources& resources)
    : spec_(spec),
      resources_(resources),
      // On a terminal rank 0 stays in the launcher's process group, which the shell moves to the foreground and
      // the background: so it can read the terminal, and the shell stops and resumes it.
      rank_0_in_own_process_group_(!on_terminal()) {}

Status Ranks::start(const Input& input, const ReportPipe& reports) {
  null_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_.valid()) return cannot_start("the ranks", Status::system("open /dev/null", errno));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return cannot_start("the ranks", Status::system("pipe2", errno));
  }
  failure_read_ = Fd(ends[0]);
  failure_write_ = Fd(ends[1]);
  const int ranks = spec_.placement.ranks;
  processes_.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> environment = resources_.environments[static_cast<size_t>(rank)];
    environment.push_back(reports.variable());
    const Fd file = rank > 0 ? input.reopen() : Fd();
    SpawnRequest request = request_for(rank, reports);
    if (file.valid()) {
      request.in = Stdio::kDescriptor;
      request.in_fd = file.get();
    }
    request.environment = &environment;
    Result<Process> process = Process::spawn(request);
    if (!process.ok()) {
      return cannot_start(text("rank ", spec_.first_rank + rank, " of ", ranks), process.status());
    }
    processes_.push_back(std::move(process).value());
    resources_.record_file.add_rank(processes_.back().pid());
    if (processes_.back().has_own_process_group())
      resources_.watchdog.set_process_group(rank, processes_.back().pid());
  }
  failure_write_ = Fd();
  return {};
}

SpawnRequest Ranks::request_for(int rank, const ReportPipe& reports) const {
  const bool is_rank_0 = spec_.first_rank + rank == 0;
  const bool shares_stdio = resources_.frontend.shares_stdio();
  const Placement& placement = spec_.placement;
  SpawnRequest request;
  request.rank = rank;
  request.command = &spec_.command;
  request.cpus = placement.cores.empty() ? nullptr : &placement.cores[static_cast<size_t>(rank)].cpus;
  request.numa_nodes =
      placement.numa_nodes.empty() ? nullptr : &placement.numa_nodes[static_cast<size_t>(rank)];
  request.warns = spec_.options.shows_warnings();
  request.inherited = &resources_.signals.inherited();
  request.own_process_group = !is_rank_0 || rank_0_in_own_process_group_;
  request.in = is_rank_0 && shares_stdio ? Stdio::kInherit : Stdio::kDevNull;
  const Options& options = spec_.options;
  request.out = options.output_on_all_devices || options.log_dir || (!shares_stdio && is_rank_0)
                    ? Stdio::kPipe
                : is_rank_0 ? Stdio::kInherit
                            : Stdio::kDevNull;
  const bool as_it_is = is_rank_0 && shares_stdio && !options.shows_all_errors() && !options.log_dir;
  request.err = !as_it_is                                 ? Stdio::kPipe
                : !drops_startup_lines(spec_.environment) ? Stdio::kInherit
                : ::isatty(STDERR_FILENO)                 ? Stdio::kTerminal
                                                          : Stdio::kPipe;
  request.null_fd = null_.get();
  request.report_fd = reports.write_fd();
  if (rank == 0) request.extra_fd = spec_.pmi_fd;
  request.failure_fd = failure_write_.get();
  return request;
}

std::optional<ExecFailure> Ranks::exec_failure() {
  ExecFailure failure;
  const ssize_t bytes = failure_read_.valid() ? ::read(failure_read_.get(), &failure, sizeof failure) : -1;
  if (bytes == 0) failure_read_ = Fd();
  return bytes == static_cast<ssize_t>(sizeof failure) ? std::optional(failure) : std::nullopt;
}

std::set<pid_t> Ranks::running() const {
  std::set<pid_t> pids;
  for (const Process& rank : processes_) {
    if (rank.alive()) pids.insert(rank.pid());
  }
  return pids;
}

void Ranks::kill() {
  for (const Process& rank : processes_) {
    if (rank.alive()) rank.signal_alone(SIGKILL);  // the rest of its group goes when it is reaped
  }
}

void Ranks::stop(int number, bool spare_rank_0, bool to_process_alone) {
  for (const Process& rank : processes_) {
    const bool knows = spare_rank_0 && !rank.has_own_process_group();
    if (!rank.alive() || knows) continue;
    to_process_alone ? rank.signal_alone(number) : rank.signal(number);
    rank.signal(SIGCONT);
  }
}

void Ranks::signal_processes(int number) const {
  for (const Process& rank : processes_) {
    if (rank.alive()) rank.signal_alone(number);
  }
}

void Ranks::signal_process_groups(int number) const {
  for (const Process& rank : processes_) {
    if (rank.alive()) rank.signal(number);
  }
}

void Ranks::suspend(bool from_terminal) const {
  const auto signal_ranks = [&](int number) {
    for (const Process& rank : processes_) {
      const bool knows = from_terminal && !rank.has_own_process_group();
      if (rank.alive() && !knows) rank.signal(number);
    }
  };
  signal_ranks(SIGSTOP);
  suspend_until_resumed();
  signal_ranks(SIGCONT);
}

bool Ranks::signal_remaining_processes(const Process& rank, const Exit& exit, int number) {
  std::set<pid_t>& signalled = remaining_processes_[rank.rank()];
  const bool had_time = exit.by_signal && leaves_time_to_save(exit.value);
  std::set<pid_t> remaining =
      had_time ? resources_.orphan_reaper.in_process_group(rank.pgid(), running()) : std::set<pid_t>();
  std::erase_if(remaining, is_resource_tracker);
  for (const pid_t pid : remaining) {
    if (number != 0 && signalled.insert(pid).second) ::kill(pid, number);
  }
  if (remaining.empty()) remaining_processes_.erase(rank.rank());
  return !remaining.empty();
}

std::vector<Process*> Ranks::ranks_with_remaining_processes() {
  std::vector<Process*> all;
  for (const auto& [rank, signalled] : remaining_processes_)
    all.push_back(&processes_[static_cast<size_t>(rank)]);
  return all;
}

void Ranks::mark_remaining_processes_signalled() {
  for (auto& [rank, signalled] : remaining_processes_) {
    signalled.merge(
        resources_.orphan_reaper.in_process_group(processes_[static_cast<size_t>(rank)].pgid(), running()));
  }
}

void Ranks::reap(Process& rank, const Exit& exit) {
  remaining_processes_.erase(rank.rank());
  resources_.watchdog.set_process_group(rank.rank(), 0);
  resources_.orphan_reaper.await_resource_trackers(running(), rank.pgid());
  rank.reap();
  resources_.rank_status.set_ended(spec_.first_rank + rank.rank(), exit.code());
  if (!rank.has_own_process_group()) resources_.orphan_reaper.sweep(running(), ::getpgrp());
}

}  // namespace tarantella::launch
