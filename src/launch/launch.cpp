#include "launch/launch.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/host.h"
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
#include "timeline/json.h"
#include "timeline/memory.h"

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

/// The memory of the ranks' timelines. Not valid if none is wanted, or after a WARNING.
timeline::Memory timeline_memory(const Options& options, int ranks) {
  if (!options.timeline || options.action == Action::kDryRun) return {};
  Result<timeline::Memory> memory = timeline::Memory::make(ranks);
  if (memory.ok()) return std::move(memory).value();
  say(text("WARNING: there will be no timeline: ", memory.status().message()));
  return {};
}

/// Writes what the ranks of the ended job have recorded. A failure is a WARNING: the job itself is over.
void write_timeline(const Options& options, const timeline::Memory& memory, int ranks) {
  std::vector<Mapping> parts;
  std::vector<timeline::Process> processes;
  for (int rank = 0; rank < ranks && memory.fd() >= 0; ++rank) {
    Result<Mapping> part = memory.part(rank);
    if (!part.ok()) return say(text("WARNING: cannot read the timeline: ", part.status().message()));
    parts.push_back(std::move(part).value());
    processes.push_back({rank, host_name(), timeline::Timeline(parts.back().bytes())});
  }
  if (processes.empty() || !options.timeline) return;
  const Status written = timeline::write_json(*options.timeline, processes);
  if (!written.ok()) return say("WARNING: " + printable(written.message()));
  const std::string lost = timeline::lost_records(processes);
  if (!lost.empty() && options.shows_warnings()) say("WARNING: " + lost);
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
  const std::string timeline_file = stripped(user, "TNT_TIMELINE");
  if (!options.timeline && !timeline_file.empty()) options.timeline = timeline_file;
  if (options.timeline) {
    if (const Status status = timeline::check_file(*options.timeline); !status.ok()) {
      say(printable(status.message()));
      return kUsageError;
    }
  }

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
  const timeline::Memory records = timeline_memory(options, placement.ranks);
  std::vector<Additions> additions;
  std::vector<std::vector<std::string>> environments;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    additions.push_back(additions_for(rank, placement, options, job_id.value(), folder, user));
    if (ended.fd() >= 0) additions.back().emplace(runtime::Ended::kVariable, std::to_string(ended.fd()));
    if (records.fd() >= 0) {
      additions.back().emplace(timeline::Memory::kVariable, std::to_string(records.fd()));
    }
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
  write_timeline(options, records, placement.ranks);
  if (verdict.signal != 0) die_of(verdict.signal);
  return verdict.code;
}

}  // namespace tarantella::launch
