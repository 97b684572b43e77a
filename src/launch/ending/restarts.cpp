#include "launch/ending/restarts.h"

#include <algorithm>
#include <utility>

#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr Duration kFirstPause = 1s;
constexpr Duration kLongestPause = 60s;
constexpr Duration kNextTry = 5s;  // to start on a host that does not answer

/// Requires hosts.
std::string named(const std::vector<std::string>& hosts) {
  std::string all = hosts.size() == 1 ? "host " : "hosts ";
  for (size_t i = 0; i < hosts.size(); ++i) all += text(i == 0 ? "'" : ", '", hosts[i], "'");
  return all;
}

}  // namespace

Restarts::Decision Restarts::after(const JobResult& result, Clock::time_point now) {
  const bool may_start_again = result.started || count_ > 0;
  if (options_.max_restarts == 0 || result.failure == FailureKind::kNone || result.signal != 0 ||
      !may_start_again)
    return {};
  if (!result.started && wait_until_ && now >= *wait_until_)
    return {.line = text("not restarted: ", named(awaited_), " did not come back within ",
                         in_seconds(options_.host_timeout), " s (--host-timeout)")};
  if (!result.started) {
    Decision decision = without(result.lost_hosts, now);
    decision.line = text("next try in ", in_seconds(decision.pause), " s", decision.line);
    return decision;
  }
  wait_until_.reset();
  if (!options_.kinds.contains(result.failure))
    return {.line = text("not restarted: '", name_of(result.failure), "' is not in --restart-on")};
  const std::string last = std::exchange(last_cause_, result.cause);
  if (count_ > 0 && last == result.cause && !result.progressed)
    return {
        .line =
            "not restarted: the same failure twice, without a snapshot or a completed epoch between them"};
  if (count_ == options_.max_restarts)
    return {.line = text("not restarted: ", options_.max_restarts, " of ", options_.max_restarts,
                         " restarts are used up (--max-restarts)")};
  in_a_row_ = result.progressed ? 0 : in_a_row_ + 1;
  ++count_;
  Decision decision = without(result.lost_hosts, now);
  decision.pause = kFirstPause;
  for (int i = 1; i < in_a_row_; ++i) decision.pause = std::min(2 * decision.pause, kLongestPause);
  decision.line = text("restart ", count_, " of ", options_.max_restarts, " in ", in_seconds(decision.pause),
                       " s", decision.line);
  return decision;
}

Restarts::Decision Restarts::without(const std::vector<std::string>& lost, Clock::time_point now) {
  Decision decision{.restart = true, .pause = kNextTry};
  if (lost.empty()) return decision;
  const auto enough = static_cast<size_t>(options_.min_hosts.value_or(static_cast<int>(hosts_)));
  if (hosts_ >= lost.size() + enough) {
    hosts_ -= lost.size();
    decision.dropped = lost;
    decision.line = text(", without ", named(lost));
    return decision;
  }
  if (!wait_until_) {
    wait_until_ = now + options_.host_timeout;
    awaited_ = lost;
    decision.line = text(", and a wait of up to ", in_seconds(options_.host_timeout), " s for ", named(lost),
                         " (--host-timeout)");
  }
  return decision;
}

}  // namespace tarantella::launch
