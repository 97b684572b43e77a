#pragma once
// What a rank finds in its environment: everything of the user's, and where it stands in the job.

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "launch/placement.h"

namespace tarantella::launch {

/// Changes to an environment: a name's new value.
using Additions = std::map<std::string, std::string>;

/// The environment of this process, as a map; entries without '=' are left out.
std::map<std::string, std::string> current_environment();

/// 32 random hexadecimal digits.
Result<std::string> new_job_id();

/// Removes what an outer launcher, whose rank this process is, has told it, so that no answer of an outer job
/// is taken for the user's wish.
void forget_outer_job(std::map<std::string, std::string>& environment);

/// What rank `rank` gets on top of `user` (the environment without an outer job's). `folder` goes in front of
/// PATH.
Additions additions_for(int rank, const Placement& placement, const Options& options,
                        const std::string& job_id, const std::string& folder,
                        const std::map<std::string, std::string>& user);

/// "NAME=value" words for execve.
std::vector<std::string> joined(std::map<std::string, std::string> user, const Additions& additions);

}  // namespace tarantella::launch
