#include "launch/launch.h"

#include <cstdio>
#include <string>
#include <vector>

#include "launch/command.h"
#include "launch/dry_run.h"
#include "launch/environment.h"
#include "launch/guard.h"
#include "launch/job.h"
#include "launch/orphans.h"
#include "launch/placement.h"
#include "launch/say.h"
#include "launch/script.h"
#include "launch/signals.h"
#include "runtime/ended.h"

namespace tarantella::launch {
namespace {

Placement place(const Options& options, const Environment& user) {
  Placement placement =
      place_on_gpus(options, runtime::find_gpus("/proc", value_of(user, "CUDA_VISIBLE_DEVICES")));
  place_on_cores(placement);
  if (options.shows_warnings()) {
    for (const std::string& warning : placement.warnings) say("WARNING: " + warning);
  }
  return placement;
}

}  // namespace

int launch(Options options) {
  if (const Status status = check_command(options.script, options.arguments); !status.ok()) {
    say(status.message());
    return kUsageError;
  }
  Environment user = current_environment();
  forget_outer_job(user);
  if (!options.log_level) options.log_level = log_level_named(stripped(user, "TNT_LOG_LEVEL"));
  options.output_on_all_devices |= is_on(user, "TNT_OUTPUT_ON_ALL_DEVICES");
  options.log_on_all_devices |= is_on(user, "TNT_LOG_ON_ALL_DEVICES");

  const std::string folder = own_folder();
  const Result<Command> command =
      command_for(options.script, options.arguments, folder, value_of(user, "PATH").value_or(kUsualPath));
  if (!command.ok()) {
    say(command.status().message());
    return kCannotRun;
  }
  const Result<std::string> job_id = new_job_id();
  if (!job_id.ok()) {
    say(job_id.status().message());
    return kLaunchError;
  }
  const Placement placement = place(options, user);
  const runtime::Ended ended =
      options.action == Action::kDryRun ? runtime::Ended() : runtime::Ended::make(placement.ranks);
  std::vector<Additions> additions;
  std::vector<std::vector<std::string>> environments;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    additions.push_back(additions_for(rank, placement, options, job_id.value(), folder, user));
    if (ended.fd() >= 0) additions.back().emplace(runtime::Ended::kVariable, std::to_string(ended.fd()));
    environments.push_back(joined(user, additions.back()));
  }
  if (options.action == Action::kDryRun) {
    std::fputs(describe_placement(placement, command.value(), additions).c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kLaunchError;
  }
  Result<Signals> signals = Signals::open();
  if (!signals.ok()) {
    say(signals.status().message());
    return kLaunchError;
  }
  Result<Guard> guard = Guard::start(job_id.value(), placement.ranks);
  if (!guard.ok()) {
    say(text("cannot start the process that guards the job: ", guard.status().message()));
    return kLaunchError;
  }
  const Orphans orphans;
  const JobDescription description{placement, options, command.value(), environments};
  const Verdict verdict = Job(description, signals.value(), orphans, guard.value(), ended).run();
  if (verdict.signal != 0) die_of(verdict.signal);
  return verdict.code;
}

}  // namespace tarantella::launch
