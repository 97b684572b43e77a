#pragma once
// Environments of processes, as maps.

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tarantella::launch {

using Environment = std::map<std::string, std::string>;

/// The PATH if none is set.
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

/// What is set in an environment on top of what it has: values by name.
using EnvironmentOverrides = std::map<std::string, std::string>;

/// The environment of this process, as a map; entries without '=' are left out.
Environment current_environment();

/// The variable's value, if it is set.
std::optional<std::string> value_of(const Environment& environment, const std::string& name);

/// The variable's value without blanks around it; empty if it is not set.
std::string stripped_value(const Environment& environment, const std::string& name);

/// Whether a switch is on, as python/tarantella/_job/environment.py reads it: any value except 0, false, no, off and an
/// empty one, in any case and with blanks around it. (Python later refuses a value that is neither on nor off.)
bool is_on(const Environment& environment, const std::string& name);

/// `environment` with the overrides, as "NAME=value" strings for execve.
std::vector<std::string> to_envp(Environment environment, const EnvironmentOverrides& overrides);

}  // namespace tarantella::launch
