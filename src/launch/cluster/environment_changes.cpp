#include "launch/cluster/environment_changes.h"

#include <set>

#include "base/mac.h"
#include "base/status.h"

namespace tarantella::launch {
namespace {

std::string mac_of(const Environment::value_type& variable, const Tag128& key) {
  const Tag128 bytes = mac(key, text("variable ", variable.first, '=', variable.second));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<std::string> variable_macs_of(const Environment& environment, std::string_view secret) {
  const Tag128 key = key_of(secret);
  std::vector<std::string> macs;
  for (const auto& variable : environment) macs.push_back(mac_of(variable, key));
  return macs;
}

EnvironmentChanges changes_to(const Environment& wanted, const std::vector<std::string>& macs,
                              std::string_view secret) {
  const Tag128 key = key_of(secret);
  const std::set<std::string> known(macs.begin(), macs.end());
  EnvironmentChanges changes;
  for (const auto& variable : wanted) {
    if (known.contains(mac_of(variable, key))) {
      changes.kept.push_back(variable.first);
    } else {
      changes.set.insert(variable);
    }
  }
  return changes;
}

Environment applied(const Environment& environment, const EnvironmentChanges& changes) {
  Environment all = changes.set;
  for (const std::string& name : changes.kept) {
    if (const auto found = environment.find(name); found != environment.end()) all.insert(*found);
  }
  return all;
}

}  // namespace tarantella::launch
