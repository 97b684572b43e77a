#include "launch/cluster/endings.h"

#include <algorithm>

#include "launch/first_cause.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

// The error of the master is on the terminal already: where all ranks raise the same one, it should be the cause.
constexpr Duration kSameTime = 2s;

}  // namespace

void Endings::ended(int node, const Verdict& verdict, Clock::time_point now) {
  master_ended_ = master_ended_ || node == 0;
  if (verdict.code != 0) failures_.push_back({node, verdict, false, now});
}

void Endings::lost(int node, const std::string& what, Clock::time_point now) {
  master_ended_ = master_ended_ || node == 0;
  failures_.push_back({node, {.code = kLaunchError, .words = as_said(what)}, true, now});
}

bool Endings::has_lost() const {
  return std::any_of(failures_.begin(), failures_.end(), [](const Failure& each) { return each.lost; });
}

const Endings::Failure* Endings::cause() const {
  const Failure* first = nullptr;
  for (const Failure& failure : failures_) {
    if (failure.verdict.code == kPeerFailed || failure.verdict.signal != 0) continue;
    if (first == nullptr) first = &failure;
    const bool same = failure.verdict.code == first->verdict.code && !failure.lost && !first->lost;
    if (failure.node == 0 && same && failure.when - first->when < kSameTime) first = &failure;
  }
  return first;
}

Clock::time_point Endings::end_others_at() const {
  const Clock::time_point first = failures_.front().when;
  const Failure* found = cause();
  if (found == nullptr) return first + FirstCause::kGraceOfTheBlamed;
  return found->lost || master_ended_ ? first : first + FirstCause::kGrace;
}

Verdict Endings::verdict(int interrupted_by) const {
  const Failure* found = cause();
  if (interrupted_by != 0 && (found == nullptr || found->lost)) {
    return {.code = 128 + interrupted_by,
            .signal = interrupted_by,
            .words = as_said(text("stopped by signal ", signal_name(interrupted_by)))};
  }
  if (found != nullptr) return found->verdict;
  return failures_.empty() ? Verdict() : failures_.front().verdict;
}

}  // namespace tarantella::launch
