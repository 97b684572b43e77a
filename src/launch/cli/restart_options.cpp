#include "launch/cli/restart_options.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/number.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr std::pair<FailureKind, const char*> kKinds[] = {
    {FailureKind::kKilled, "killed"}, {FailureKind::kHost, "host"}, {FailureKind::kException, "exception"}};

Status invalid(const std::string& line) { return {Code::kInvalidArgument, line}; }

Result<std::set<FailureKind>> kinds_in(const std::string& words) {
  std::set<FailureKind> kinds;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                     [&](const auto& each) { return each.second == word; });
    if (found == std::end(kKinds)) {
      return invalid(
          text("option '--restart-on' takes killed, host and exception, separated by commas, not '",
               printable(word), "'"));
    }
    kinds.insert(found->first);
  }
  if (kinds.empty()) return invalid("option '--restart-on' needs one of killed, host and exception");
  return kinds;
}

}  // namespace

const char* name_of(FailureKind kind) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [kind](const auto& each) { return each.first == kind; });
  return found == std::end(kKinds) ? "" : found->second;
}

Result<RestartOptions> restart_options(const Options& options, size_t hosts) {
  RestartOptions chosen;
  const std::string max_restarts = options.max_restarts.value_or("0");
  if (!to_number(max_restarts, chosen.max_restarts) || chosen.max_restarts < 0) {
    return invalid(text("TNT_MAX_RESTARTS needs a whole number of restarts, 0 or more, not '",
                        printable(max_restarts), "'"));
  }
  const std::pair<const char*, bool> about_hosts[] = {{"--min-hosts", options.min_hosts.has_value()},
                                                      {"--host-timeout", options.host_timeout.has_value()}};
  for (const auto& [name, given] :
       {std::pair{"--restart-on", options.restart_on.has_value()}, about_hosts[0], about_hosts[1]}) {
    if (given && chosen.max_restarts == 0)
      return invalid(text("option '", name, "' needs '--max-restarts', the number of restarts allowed"));
  }
  if (options.restart_on) {
    Result<std::set<FailureKind>> kinds = kinds_in(*options.restart_on);
    if (!kinds.ok()) return kinds.status();
    chosen.kinds = std::move(kinds).value();
  }
  for (const auto& [name, given] : about_hosts) {
    if (given && !chosen.kinds.contains(FailureKind::kHost))
      return invalid(text("option '", name, "' is about lost hosts, which '--restart-on ",
                          options.restart_on.value_or(""), "' leaves out"));
  }
  if (options.min_hosts && static_cast<size_t>(*options.min_hosts) > hosts) {
    return invalid(
        text("option '--min-hosts' asks for ", *options.min_hosts, " hosts, but the job has ", hosts));
  }
  chosen.min_hosts = options.min_hosts;
  if (options.host_timeout) chosen.host_timeout = from_seconds(std::stod(*options.host_timeout));
  return chosen;
}

}  // namespace tarantella::launch
