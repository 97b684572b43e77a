#include "launch/ranks/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launch/cli/job_variables.h"
#include "launch/ranks/job_record.h"
#include "launch/ranks/launcher_watchdog.h"
#include "launch/system/environment.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr Duration kGiveUpAfter = 15s;
constexpr size_t kLongestRecord = 1024 * 1024;

/// A process that a job has left.
struct Leftover {
  ProcessId process;
  std::string role;  ///< "rank 0"
};

/// A job whose record was found, and what is left of it.
struct FoundJob {
  std::string path;
  JobRecord record;
  std::vector<Leftover> leftovers;
  bool has_launcher = false;
};

/// The content of a file of this user's in a folder; empty if there is none.
std::string own_file(const Fd& folder, const char* name) {
  const Fd file(::openat(folder.get(), name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return "";
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) return "";
  std::string content(std::min(static_cast<size_t>(info.st_size), kLongestRecord), '\0');
  const ssize_t bytes = ::read(file.get(), content.data(), content.size());
  content.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return content;
}

/// The processes of a job that still run: recorded ranks, and processes with its marker. Leaves out the watchdogs of
/// jobs inside this one, and this process, which may run in a terminal that a rank has started.
std::vector<Leftover> leftovers_of(const JobRecord& record) {
  std::vector<Leftover> leftovers;
  for (size_t rank = 0; rank < record.ranks.size(); ++rank) {
    if (is_own_and_runs(record.ranks[rank])) leftovers.push_back({record.ranks[rank], text("rank ", rank)});
  }
  const std::string job_marker = text(kJobMarkerVariable, '=', record.job);
  for (const pid_t pid : all_processes()) {
    const ProcessId process{pid, start_time(pid).value_or(0)};
    const bool known = std::any_of(leftovers.begin(), leftovers.end(),
                                   [&](const Leftover& each) { return each.process == process; });
    if (!known && pid != ::getpid() && is_own_and_runs(process) && has_variable(pid, job_marker) &&
        !is_launcher_watchdog(pid))
      leftovers.push_back({process, "started by a rank"});
  }
  return leftovers;
}

void add_jobs_in(const std::string& path, const std::string& script, std::vector<FoundJob>& jobs) {
  const Fd folder = open_private_folder(path, false);
  DIR* entries = folder.valid() ? ::fdopendir(::dup(folder.get())) : nullptr;
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    std::optional<JobRecord> record = parse_job_record(own_file(folder, entry->d_name));
    if (!record || (!script.empty() && record->script != printable(script))) continue;
    FoundJob found{path + "/" + entry->d_name, *std::move(record), {}, false};
    const bool same_boot = found.record.boot == boot_id();
    if (same_boot && found.record.pid_namespace != pid_namespace())
      continue;  // a container's: its numbers mean others here
    // also one that /proc shows as root's, since its executable cannot be read
    found.has_launcher = same_boot && start_time(found.record.launcher.pid) == found.record.launcher.start;
    if (same_boot) found.leftovers = leftovers_of(found.record);
    jobs.push_back(std::move(found));
  }
  ::closedir(entries);
}

void print_leftovers(const FoundJob& job) {
  std::printf("job %.8s of %s, whose launcher has gone:\n", job.record.job.c_str(),
              job.record.script.c_str());
  for (const Leftover& each : job.leftovers)
    std::printf("  pid %d, %s\n", each.process.pid, each.role.c_str());
}

bool user_agrees(size_t count) {
  std::printf("End %s? [y/N] ", count == 1 ? "this process" : text("these ", count, " processes").c_str());
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void kill(const ProcessId& process) {
  const Fd handle(
      static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));  // keeps the number from reuse
  if (handle.valid() && is_own_and_runs(process))
    ::syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
}

/// Kills all processes of a job, also those that they start meanwhile. Returns whether all have ended.
bool end(FoundJob& job) {
  const Deadline deadline = Deadline::after(kGiveUpAfter);
  for (; !job.leftovers.empty() && !deadline.passed(); job.leftovers = leftovers_of(job.record)) {
    for (const Leftover& each : job.leftovers) kill(each.process);
    ::usleep(10000);
  }
  for (const Leftover& each : job.leftovers)
    print_message(text("pid ", each.process.pid, " does not end: it is stuck in the kernel"));
  if (job.leftovers.empty()) ::unlink(job.path.c_str());
  return job.leftovers.empty();
}

}  // namespace

int clean_up(const Options& options) {
  std::vector<FoundJob> jobs;
  for (const std::string& folder : job_record_folders(current_environment()))
    add_jobs_in(folder, options.script, jobs);
  size_t count = 0;
  for (const FoundJob& job : jobs) {
    if (job.has_launcher) {
      std::printf("job %.8s of %s runs and is left alone; end it with: kill %d\n", job.record.job.c_str(),
                  job.record.script.c_str(), job.record.launcher.pid);
    } else if (job.leftovers.empty()) {
      ::unlink(job.path.c_str());
    } else {
      print_leftovers(job);
      count += job.leftovers.size();
    }
  }
  if (count == 0) {
    std::puts("nothing is left of killed jobs on this machine");
    return 0;
  }
  if (!options.force && !user_agrees(count)) {
    std::puts("nothing was ended");
    return 1;
  }
  bool all = true;
  for (FoundJob& job : jobs) {
    if (!job.has_launcher && !job.leftovers.empty()) all &= end(job);
  }
  if (all) std::printf("ended %zu process%s\n", count, count == 1 ? "" : "es");
  return all ? 0 : 1;
}

}  // namespace tarantella::launch
