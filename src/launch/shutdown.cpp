#include "launch/shutdown.h"

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

Shutdown::Order Shutdown::cannot_start(Clock::time_point now) { return kill("", now); }

void Shutdown::reported(const FirstCause::Ending& ending, Clock::time_point now) {
  if (undecided()) first_cause_.reported(ending, now);
}

void Shutdown::ended(const FirstCause::Ending& ending, Clock::time_point now) {
  if (undecided()) first_cause_.ended(ending, now);
}

Shutdown::Order Shutdown::signalled(const Signals::Event& event, size_t living, Clock::time_point now) {
  // Batch systems and service managers signal all processes, in any order: the signal may have ended ranks already.
  const bool others_may_save = interrupted_by_ == 0 && leaves_time(event.number) && phase_ != Phase::kKilling;
  if (phase_ == Phase::kRunning || others_may_save) {
    interrupted_by_ = event.number;
    interrupted_at_ = now;
    if (phase_ == Phase::kFailing) stopped_others_ = has_others(living);
    const bool told = phase_ == Phase::kStopping && signal_sent_ == event.number;
    Order order = stop(event.number, now, now + grace_after(event.number));
    if (told) order.kind = Order::Kind::kCountAsTold;
    order.spare_master = event.from_terminal;
    return order;
  }
  if (interrupted_by_ == 0 || (event.number == SIGINT && now - interrupted_at_ > kSameKeystroke)) {
    return kill(text("signal ", signal_name(event.number), " came while the job was ending"), now);
  }
  return {};
}

Shutdown::Order Shutdown::abandon(size_t living, Clock::time_point now) {
  const auto kill_at = now + (interrupted_by_ != 0 ? kKillAfterKey : kKillAfterDeadline);
  if (undecided()) {
    stopped_others_ = first_cause_.failed() && has_others(living);
    return stop(SIGTERM, now, kill_at);
  }
  if (phase_ == Phase::kStopping) kill_at_ = std::min(kill_at_, kill_at);
  return {};
}

Shutdown::Order Shutdown::advance(size_t living, Clock::time_point now) {
  Order order;
  if (phase_ == Phase::kRunning && first_cause_.failed()) phase_ = Phase::kFailing;
  if (phase_ == Phase::kFailing) {
    const auto deadline = first_cause_.deadline();
    if (first_cause_.settled() || now >= deadline) {
      stopped_others_ = has_others(living);
      order = stop(SIGTERM, now, std::max(now, deadline) + kKillAfterDeadline);
    }
  }
  if (living == 0 && !std::exchange(all_ended_, true)) kill_at_ = std::min(kill_at_, now);
  if (phase_ == Phase::kStopping && now >= kill_at_) {
    const double waited = std::round(in_seconds(now - stopped_at_) * 10) / 10;
    const char* cause =
        interrupted_by_ == 0 && first_cause_.failed() ? "the job has failed, and it was " : "";
    order = kill(text(cause, "still running ", waited, " s after signal ", signal_name(signal_sent_)), now);
  }
  return order;
}

Shutdown::Order Shutdown::stop(int number, Clock::time_point now, Clock::time_point kill_at) {
  phase_ = Phase::kStopping;
  signal_sent_ = number;
  stopped_at_ = now;
  kill_at_ = kill_at;
  return {.kind = Order::Kind::kStop, .to_process_alone = leaves_time(interrupted_by_)};
}

Shutdown::Order Shutdown::kill(std::string why, Clock::time_point now) {
  phase_ = Phase::kKilling;
  kill_at_ = now;
  return {.kind = Order::Kind::kKill, .why = std::move(why)};
}

int Shutdown::timeout_ms(Clock::time_point now) const {
  Clock::time_point next;
  switch (phase_) {
    case Phase::kRunning:
      return -1;
    case Phase::kFailing:
      next = first_cause_.deadline();
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
  return !undecided() && now >= kill_at_ + kGiveUpAfter;
}

bool Shutdown::blames_a_rank() const {
  return first_cause_.failed() && first_cause_.cause().exit.code() != 128 + interrupted_by_;
}

bool Shutdown::has_others(size_t living) const { return living > (first_cause_.cause().ended ? 0 : 1); }

Duration Shutdown::grace_after(int number) const {
  if (grace_seconds_) return from_seconds(*grace_seconds_);
  return number == SIGINT || number == SIGQUIT ? kKillAfterKey : kKillAfter;
}

}  // namespace tarantella::launch
