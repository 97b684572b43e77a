#pragma once
// The environment of the ranks, sent to a host as the difference from its own.

#include <string>
#include <string_view>
#include <vector>

#include "launch/system/environment.h"

namespace tarantella::launch {

struct EnvironmentChanges {
  std::vector<std::string> kept;  ///< names of variables whose values the host has; it drops all others
  Environment set;                ///< variables that it lacks, or that have another value there

  bool operator==(const EnvironmentChanges&) const = default;
};

/// A MAC of each variable and its value, which a host sends: without the secret, it reveals nothing. Pure.
std::vector<std::string> variable_macs_of(const Environment& environment, std::string_view secret);

/// The changes that make the environment whose variables have these `macs` the environment `wanted`. Pure.
EnvironmentChanges changes_to(const Environment& wanted, const std::vector<std::string>& macs,
                              std::string_view secret);

/// `environment` with the changes. Pure.
Environment applied(const Environment& environment, const EnvironmentChanges& changes);

}  // namespace tarantella::launch
