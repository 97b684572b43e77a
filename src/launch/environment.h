#pragma once
// What a rank finds in its environment: everything of the user's, and where it stands in the job.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "launch/placement.h"

namespace tarantella::launch {

using Environment = std::map<std::string, std::string>;

/// PATH where none is set.
constexpr char kUsualPath[] = "/usr/local/bin:/usr/bin:/bin";

/// Changes to an environment: a name's new value.
using Additions = std::map<std::string, std::string>;

/// The environment of this process, as a map; entries without '=' are left out.
Environment current_environment();

/// The variable's value, if it is set.
std::optional<std::string> value_of(const Environment& environment, const std::string& name);

/// The variable's value without blanks around it; empty if it is not set.
std::string stripped(const Environment& environment, const std::string& name);

/// Whether a switch is on, as python/tarantella/_job/environment.py reads it: any value but 0, false, no, off and
/// nothing, in any case and with any blanks around it. (Python then refuses one that is neither on nor off.)
bool is_on(const Environment& environment, const std::string& name);

/// 32 random hexadecimal digits.
Result<std::string> new_job_id();

/// Removes what an outer launcher, whose rank this process is, has told it, so that no answer of an outer job
/// is taken for the user's wish.
void forget_outer_job(Environment& environment);

/// What rank `rank` gets on top of `user` (the environment without an outer job's). `folder` goes in front of
/// PATH.
Additions additions_for(int rank, const Placement& placement, const Options& options,
                        const std::string& job_id, const std::string& folder, const Environment& user);

/// "NAME=value" words for execve.
std::vector<std::string> joined(Environment user, const Additions& additions);

}  // namespace tarantella::launch
