#include "launch/cluster/host_exits.h"

#include <algorithm>
#include <utility>

#include "launch/ending/root_cause.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

// The error of rank 0 is on the terminal already: where all ranks raise the same one, it should be the cause.
constexpr Duration kSameTime = 2s;

}  // namespace

void HostExits::on_exit(int host, const JobResult& result, Clock::time_point now) {
  rank_0_ended_ = rank_0_ended_ || host == 0;
  if (result.code != 0) failures_.push_back({host, result, false, now});
}

void HostExits::on_loss(int host, const std::string& name, const std::string& what, Clock::time_point now) {
  rank_0_ended_ = rank_0_ended_ || host == 0;
  JobResult result{.code = kLaunchError,
                   .message = message_line(what),
                   .failure = FailureKind::kHost,
                   .cause = "host " + name};
  if (!name.empty()) result.lost_hosts = {name};
  failures_.push_back({host, std::move(result), true, now});
}

bool HostExits::has_lost() const {
  return std::any_of(failures_.begin(), failures_.end(), [](const Failure& each) { return each.lost; });
}

const HostExits::Failure* HostExits::cause(const std::string& output) const {
  const Failure* first = nullptr;
  for (const Failure& failure : failures_) {
    if (failure.result.code == kPeerFailed || failure.result.signal != 0) continue;
    if (first == nullptr) first = &failure;
    const bool same = failure.result.code == first->result.code && !failure.lost && !first->lost;
    const auto is_named = [&](const Failure& each) {
      return each.lost && !each.result.lost_hosts.empty() &&
             output.find(each.result.lost_hosts[0]) != std::string::npos;
    };
    if (first->lost && !is_named(*first) && is_named(failure)) first = &failure;
    if (failure.host == 0 && same && failure.when - first->when < kSameTime) first = &failure;
  }
  return first;
}

Clock::time_point HostExits::end_others_at() const {
  const Clock::time_point first = failures_.front().when;
  const Failure* found = cause();
  if (found == nullptr) return first + RootCause::kRootCauseGrace;
  return found->lost || rank_0_ended_ ? first : first + RootCause::kRank0Grace;
}

JobResult HostExits::result(int interrupted_by, const std::string& output) const {
  const Failure* found = cause(output);
  if (interrupted_by != 0 && (found == nullptr || found->lost)) return interrupted(interrupted_by);
  if (found != nullptr) return found->result;
  return failures_.empty() ? JobResult() : failures_.front().result;
}

}  // namespace tarantella::launch
