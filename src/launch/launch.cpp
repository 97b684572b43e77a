#include "launch/launch.h"

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/cluster/cluster.h"
#include "launch/command.h"
#include "launch/dry_run.h"
#include "launch/environment.h"
#include "launch/guard.h"
#include "launch/hosts/plan.h"
#include "launch/hosts/srun.h"
#include "launch/job.h"
#include "launch/log_files.h"
#include "launch/orphans.h"
#include "launch/placement.h"
#include "launch/proc.h"
#include "launch/process.h"
#include "launch/record.h"
#include "launch/say.h"
#include "launch/script.h"
#include "launch/settings.h"
#include "launch/signals.h"
#include "launch/timeline_file.h"
#include "launch/versions.h"
#include "runtime/attendance.h"
#include "timeline/json.h"
#include "timeline/memory.h"

namespace tarantella::launch {
namespace {

/// Prints why nothing runs, and returns the exit code.
int refuse(const Status& status, int otherwise) {
  say(printable(status.message()));
  return status.code() == Code::kInvalidArgument ? kUsageError : otherwise;
}

/// What runs where, and who said so.
std::string one_line(const Plan& plan, const Placement& placement) {
  return text(plan.source.empty() ? "" : plan.source + ": ",
              placement.ranks == 1 ? "1 rank" : text(placement.ranks, " ranks"), " on ", plan.shares[0].host,
              placement.gpus.empty() ? "" : ", each with a GPU");
}

/// What must be right before the first rank is started. Starts and writes nothing.
Status check(const Options& options) {
  TNT_RETURN_IF_ERROR(check_command(options.script, options.arguments));
  return options.timeline ? timeline::check_file(*options.timeline) : Status();
}

int print_dry_run(const Placement& placement, const Command& command, const std::vector<Additions>& additions,
                  const Options& options, const Environment& user) {
  const Versions versions = ask_python(command, user);
  const std::string warning = complaint(versions);
  if (!warning.empty() && options.shows_warnings()) say("WARNING: " + warning);
  std::fputs(describe_placement(placement, command, additions, versions).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kLaunchError;
}

/// Runs the job to its end. kSystem if it cannot be started.
Result<Verdict> run(const JobDescription& job, Signals& signals, const std::string& job_id,
                    const runtime::Attendance& attendance) {
  Result<Guard> guard = Guard::start(job_id, job.placement.ranks, job.record.path());
  if (!guard.ok()) return cannot_start("the process that guards the job", guard.status());
  const Orphans orphans;
  return Job(job, signals, orphans, guard.value(), attendance).run();
}

/// For --this-host: whether another host would have to be asked.
Status check_host(const Plan& plan, bool through_srun, const Environment& user) {
  if (!through_srun && runs_here(plan, user)) return {};
  const size_t more = plan.shares.size() - 1;
  return {Code::kInvalidArgument,
          text("tarantella scaling measures the cores of this machine, but the ranks of ", plan.source,
               " run on ", plan.shares[0].host, more == 0 ? "" : text(" and ", more, " more"),
               ": start it on a host of the job, with as many ranks as that has")};
}

/// Becomes an srun that runs this command line on the only host of a Slurm job. Returns only if that fails.
Status run_on_node(const Plan& plan, const Options& options, const std::string& folder,
                   const Environment& user) {
  const std::string& host = plan.shares[0].host;
  const Result<Command> command = command_through_srun(folder + "/tarantella", options.words, host, user);
  if (!command.ok()) return command.status();
  if (options.shows_information()) say(text("INFO: ", plan.source, ": srun starts tarantella on ", host));
  return exec_through_srun(command.value(), plan.tasks, user);
}

}  // namespace

int launch(Options options) {
  Environment user = current_environment();
  std::string parent = content_of(text("/proc/", ::getppid(), "/comm"));
  if (parent.ends_with('\n')) parent.pop_back();
  if (const Status status = check_started_once(user, is_shell(parent)); !status.ok()) {
    return status.message().empty() ? kUsageError : refuse(status, kUsageError);
  }
  forget_outer_job(user);
  complete(options, user);
  if (const Status status = check(options); !status.ok()) return refuse(status, kUsageError);
  const std::string folder = own_folder();
  const Result<Command> command = command_for(options.script, options.arguments, options.interpreter, folder,
                                              value_of(user, "PATH").value_or(kUsualPath));
  if (!command.ok()) return refuse(command.status(), kCannotRun);
  const runtime::Gpus gpus = runtime::find_gpus("/proc", value_of(user, "CUDA_VISIBLE_DEVICES"));
  const Result<Plan> plan = plan_for(options, user, gpus);
  if (!plan.ok()) return refuse(plan.status(), kUsageError);
  const bool through_srun =
      !options.hostfile && plan.value().shares.size() == 1 && is_outside_of_slurm_job(user);
  if (options.this_host) {
    const Status status = check_host(plan.value(), through_srun, user);
    if (!status.ok()) return refuse(status, kUsageError);
  }
  if (through_srun) {
    return refuse(run_on_node(plan.value(), options, folder, user), kCannotRun);
  }
  user.erase(kTasks);
  const bool is_dry = options.action == Action::kDryRun;
  if (is_dry) {
    const HostShare& last = plan.value().shares.back();
    const std::string batch = describe_batch(options.arguments, last.first + last.ranks);
    std::fputs((describe_hosts(plan.value()) + batch).c_str(), stdout);
  }
  if (!runs_here(plan.value(), user)) {
    return launch_on_hosts(plan.value(), options, command.value(), user, folder);
  }
  const Result<std::string> job_id = new_job_id();
  if (!job_id.ok()) return refuse(job_id.status(), kLaunchError);
  const Placement placement = place(plan.value().shares[0].ranks, plan.value().chosen, options, gpus);
  if (options.shows_warnings()) {
    for (const std::string& warning : placement.warnings) say("WARNING: " + warning);
  }
  if (options.shows_information()) say("INFO: " + one_line(plan.value(), placement));
  const runtime::Attendance attendance =
      is_dry ? runtime::Attendance() : runtime::Attendance::make(placement.ranks);
  const timeline::Memory records = timeline_memory(options, placement.ranks);

  std::vector<Additions> additions;
  std::vector<std::vector<std::string>> environments;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    additions.push_back(additions_for(rank, placement, options, job_id.value(), folder, user));
    if (attendance.fd() >= 0)
      additions.back().emplace(runtime::Attendance::kVariable, std::to_string(attendance.fd()));
    if (records.fd() >= 0) {
      additions.back().emplace(timeline::Memory::kVariable, std::to_string(records.fd()));
    }
    environments.push_back(joined(user, additions.back()));
  }
  if (is_dry) return print_dry_run(placement, command.value(), additions, options, user);
  Result<Signals> signals = Signals::open();  // before any file of ours meets a limit
  if (!signals.ok()) return refuse(cannot_start("the job", signals.status()), kLaunchError);
  Result<LogFiles> logs = options.log_dir ? LogFiles::open(*options.log_dir, placement.ranks) : LogFiles();
  if (!logs.ok()) return refuse(logs.status(), kLaunchError);
  // --cleanup has no -x, and looks where its own environment says
  std::optional<Record> record(std::in_place, current_environment(), job_id.value(), options.script);
  const Result<Verdict> verdict = run({.placement = placement,
                                       .options = options,
                                       .command = command.value(),
                                       .environments = environments,
                                       .logs = logs.value(),
                                       .record = *record,
                                       .drops_start_lines = drops_start_lines(user)},
                                      signals.value(), job_id.value(), attendance);
  record.reset();
  if (!verdict.ok()) return refuse(verdict.status(), kLaunchError);
  write_timeline(options, records, placement.ranks);
  if (verdict.value().signal != 0) die_of(verdict.value().signal);
  return verdict.value().code;
}

}  // namespace tarantella::launch
