#pragma once
// The environment of a rank: that of the user, and the rank's place in the job.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "launch/placement.h"

namespace tarantella::launch {

using Environment = std::map<std::string, std::string>;

/// The PATH if none is set.
constexpr char kUsualPath[] = "/usr/local/bin:/usr/bin:/bin";

/// Changes to an environment: new values by name.
using Additions = std::map<std::string, std::string>;

/// The environment of this process, as a map; entries without '=' are left out.
Environment current_environment();

/// The variable's value, if it is set.
std::optional<std::string> value_of(const Environment& environment, const std::string& name);

/// The variable's value without blanks around it; empty if it is not set.
std::string stripped(const Environment& environment, const std::string& name);

/// Whether a switch is on, as python/tarantella/_job/environment.py reads it: any value except 0, false, no, off and an
/// empty one, in any case and with blanks around it. (Python later refuses a value that is neither on nor off.)
bool is_on(const Environment& environment, const std::string& name);

/// 32 random hexadecimal digits.
Result<std::string> new_job_id();

/// Whether the launcher gives each rank a value of its own for this variable, so that no user can.
bool is_of_the_job(const std::string& name);

/// If this process is a rank of an outer job, removes the variables which that job's launcher has set, so that they are
/// not taken for settings of the user.
void forget_outer_job(Environment& environment);

/// What rank `rank` gets in addition to `user`, an environment after forget_outer_job(). `folder` becomes the first
/// entry of PATH.
Additions additions_for(int rank, const Placement& placement, const Options& options,
                        const std::string& job_id, const std::string& folder, const Environment& user);

/// Whether the user has not asked for the notes that TensorFlow logs: TF_CPP_MIN_LOG_LEVEL is not set, or above 0.
bool drops_start_lines(const Environment& user);

/// `user` with the additions, as "NAME=value" words for execve.
std::vector<std::string> joined(Environment user, const Additions& additions);

}  // namespace tarantella::launch
