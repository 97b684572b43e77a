#include "launch/ending/shutdown.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

namespace tarantella::launch {
namespace {

// The time until SIGKILL: after a key (Ctrl-C, Ctrl-\); after other signals, which leave time for a checkpoint; and
// after the SIGTERM that follows a failure, when ranks have nothing to save since one is missing.
constexpr Duration kKillAfterKey = 1500ms;
constexpr Duration kKillAfter = 30s;
constexpr Duration kKillAfterDeadline = 500ms;
constexpr Duration kGiveUpAfter = 15s;  // threads of idle priority may get a core late
// Some senders signal a process twice at once (timeout(1) signals it and its group). A second Ctrl-C comes later.
constexpr Duration kSameKeystroke = 100ms;

}  // namespace

Shutdown::Action Shutdown::on_start_failure(Clock::time_point now) { return kill("", now); }

void Shutdown::on_failure_report(const RankExit& rank_exit, Clock::time_point now) {
  if (is_before_stop()) root_cause_.on_failure_report(rank_exit, now);
}

void Shutdown::on_exit(const RankExit& rank_exit, Clock::time_point now) {
  if (is_before_stop()) {
    root_cause_.on_exit(rank_exit, now);
  } else if (rank_exit.status.by_signal || rank_exit.status.value != kPreempted) {
    all_have_saved_ = false;
  } else {
    all_have_saved_ = all_have_saved_.value_or(true);
  }
}

Shutdown::Action Shutdown::on_signal(const Signals::Event& event, size_t running, Clock::time_point now) {
  // Batch systems and service managers signal all processes, in any order: the signal may have ended ranks already.
  const bool others_may_save =
      interrupted_by_ == 0 && leaves_time_to_save(event.number) && phase_ != Phase::kKilling;
  if (phase_ == Phase::kRunning || others_may_save) {
    interrupted_by_ = event.number;
    interrupted_at_ = now;
    if (phase_ == Phase::kFailing) stopped_others_ = others_running(running);
    const bool was_sent = phase_ == Phase::kStopping && signal_sent_ == event.number;
    Action action = stop(event.number, now, now + grace_after(event.number));
    if (was_sent) action.kind = Action::Kind::kMarkSignalled;
    action.spare_rank_0 = event.from_terminal;
    return action;
  }
  if (interrupted_by_ == 0 || (event.number == SIGINT && now - interrupted_at_ > kSameKeystroke)) {
    return kill(text("signal ", signal_name(event.number), " came while the job was ending"), now);
  }
  return {};
}

Shutdown::Action Shutdown::terminate(size_t running, Clock::time_point now) {
  const auto kill_at = now + (interrupted_by_ != 0 ? kKillAfterKey : kKillAfterDeadline);
  if (is_before_stop()) {
    stopped_others_ = root_cause_.failed() && others_running(running);
    return stop(SIGTERM, now, kill_at);
  }
  if (phase_ == Phase::kStopping) kill_at_ = std::min(kill_at_, kill_at);
  return {};
}

Shutdown::Action Shutdown::next_action(size_t running, Clock::time_point now) {
  Action action;
  if (phase_ == Phase::kRunning && root_cause_.failed()) phase_ = Phase::kFailing;
  if (phase_ == Phase::kFailing) {
    const auto deadline = root_cause_.deadline();
    if (root_cause_.is_final() || now >= deadline) {
      stopped_others_ = others_running(running);
      action = stop(SIGTERM, now, std::max(now, deadline) + kKillAfterDeadline);
    }
  }
  if (running == 0 && !std::exchange(all_ended_, true)) kill_at_ = std::min(kill_at_, now);
  if (phase_ == Phase::kStopping && now >= kill_at_) {
    const double waited = std::round(in_seconds(now - stopped_at_) * 10) / 10;
    const char* cause = interrupted_by_ == 0 && root_cause_.failed() ? "the job has failed, and it was " : "";
    action = kill(text(cause, "still running ", waited, " s after signal ", signal_name(signal_sent_)), now);
  }
  return action;
}

Shutdown::Action Shutdown::stop(int number, Clock::time_point now, Clock::time_point kill_at) {
  phase_ = Phase::kStopping;
  signal_sent_ = number;
  stopped_at_ = now;
  kill_at_ = kill_at;
  return {.kind = Action::Kind::kStop, .to_process_alone = leaves_time_to_save(interrupted_by_)};
}

Shutdown::Action Shutdown::kill(std::string reason, Clock::time_point now) {
  phase_ = Phase::kKilling;
  kill_at_ = now;
  return {.kind = Action::Kind::kKill, .reason = std::move(reason)};
}

int Shutdown::timeout_ms(Clock::time_point now) const {
  Clock::time_point next;
  switch (phase_) {
    case Phase::kRunning:
      return -1;
    case Phase::kFailing:
      next = root_cause_.deadline();
      break;
    case Phase::kStopping:
      next = kill_at_;
      break;
    case Phase::kKilling:
      next = kill_at_ + kGiveUpAfter;
      break;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::max<long>(0, left));
}

bool Shutdown::given_up(Clock::time_point now) const {
  return !is_before_stop() && now >= kill_at_ + kGiveUpAfter;
}

bool Shutdown::has_failure_beside_signal() const {
  return root_cause_.failed() && root_cause_.cause().status.code() != 128 + interrupted_by_;
}

bool Shutdown::others_running(size_t running) const {
  return running > (root_cause_.cause().has_exited ? 0 : 1);
}

Duration Shutdown::grace_after(int number) const {
  if (grace_seconds_) return from_seconds(*grace_seconds_);
  return number == SIGINT || number == SIGQUIT ? kKillAfterKey : kKillAfter;
}

}  // namespace tarantella::launch
