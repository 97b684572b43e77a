#include "launch/ranks/local_job.h"

#include <utility>

#include "launch/cli/job_variables.h"
#include "launch/output/log_files.h"
#include "launch/ranks/job.h"
#include "launch/ranks/job_record.h"
#include "launch/ranks/launcher_watchdog.h"
#include "launch/ranks/orphan_reaper.h"
#include "launch/system/process.h"
#include "runtime/rank_status_file.h"

namespace tarantella::launch {

Result<JobResult> run_local_job(const LocalJobSpec& spec, Signals& signals, Frontend& frontend) {
  const runtime::RankStatusFile rank_status = runtime::RankStatusFile::make(spec.all_ranks);
  std::vector<std::vector<std::string>> environments;
  for (EnvironmentOverrides overrides : spec.overrides) {
    if (rank_status.fd() >= 0)
      overrides[runtime::RankStatusFile::kVariable] = std::to_string(rank_status.fd());
    if (spec.timelines.fd() >= 0)
      overrides[timeline::Memory::kVariable] = std::to_string(spec.timelines.fd());
    environments.push_back(to_envp(spec.environment, overrides));
  }
  const int ranks = spec.placement.ranks;
  const std::optional<std::string>& folder = spec.options.log_dir;
  const bool is_restarted = value_of(spec.environment, kRestartCount).value_or("0") != "0";
  Result<LogFiles> logs = folder ? LogFiles::open(*folder, ranks, spec.first_rank, is_restarted) : LogFiles();
  if (!logs.ok()) return logs.status();
  // --cleanup has no -x: it searches the folders of its own environment
  JobRecordFile record_file(current_environment(), spec.job_marker, spec.options.script);
  Result<LauncherWatchdog> watchdog = LauncherWatchdog::start(spec.job_marker, ranks, record_file.path());
  if (!watchdog.ok()) return cannot_start("the process that guards the job", watchdog.status());
  const OrphanReaper orphan_reaper;
  const JobResources resources{.environments = environments,
                               .logs = logs.value(),
                               .record_file = record_file,
                               .watchdog = watchdog.value(),
                               .orphan_reaper = orphan_reaper,
                               .rank_status = rank_status,
                               .signals = signals,
                               .frontend = frontend};
  return Job(spec, resources).run();
}

}  // namespace tarantella::launch
