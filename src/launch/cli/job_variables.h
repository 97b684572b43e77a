#pragma once
// The environment variables that describe a rank's place in the job. The launcher sets them, not the user.

#include <string>

#include "base/status.h"
#include "launch/system/environment.h"

namespace tarantella::launch {

/// The variable that marks every process of a job: ranks have it in their environment, and processes that they start
/// inherit it. It is not TNT_JOB_ID, which a rank may remove for its children.
constexpr char kJobMarkerVariable[] = "TARANTELLA_JOB";

/// How often the job was started again, 0 at first. Only with --max-restarts.
constexpr char kRestartCount[] = "TNT_RESTART_COUNT";

/// 32 random hexadecimal digits.
Result<std::string> new_job_id();

/// Whether the launcher gives each rank a value of its own for this variable, so that no user can. Pure.
bool is_job_variable(const std::string& name);

/// If this process is a rank of an outer job, removes the variables which that job's launcher has set. The user did not
/// set them. Pure.
void remove_outer_job_variables(Environment& environment);

}  // namespace tarantella::launch
