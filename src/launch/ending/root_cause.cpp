#include "launch/ending/root_cause.h"

#include <csignal>

namespace tarantella::launch {
namespace {

/// Whether the rank failed only because another one did.
bool is_secondary(const RankExit& rank_exit) {
  return !rank_exit.status.by_signal && rank_exit.status.value == kPeerFailed;
}

}  // namespace

void RootCause::on_failure_report(const RankExit& rank_exit, Clock::time_point when) {
  if (failures_.empty()) first_failure_ = when;
  failures_.push_back(rank_exit);
  failures_.back().has_exited = false;
}

void RootCause::on_exit(const RankExit& rank_exit, Clock::time_point when) {
  if (rank_exit.rank == 0) rank_0_ended_ = true;
  for (RankExit& known : failures_) {
    if (known.rank != rank_exit.rank) continue;
    known.has_exited = true;
    if (!rank_exit.status.ok()) known.status = rank_exit.status;
    return;
  }
  if (rank_exit.status.ok()) {
    if (failures_.empty() && !early_exit_) early_exit_ = rank_exit;
    return;
  }
  if (failures_.empty()) first_failure_ = when;
  failures_.push_back(rank_exit);
}

Clock::time_point RootCause::deadline() const {
  const bool cause_runs = is_secondary(cause()) || !cause().has_exited;
  return first_failure_ + (cause_runs ? kRootCauseGrace : kRank0Grace);
}

bool RootCause::is_final() const {
  return failed() && rank_0_ended_ && cause().has_exited && !is_secondary(cause());
}

const RankExit& RootCause::cause() const {
  for (const RankExit& rank_exit : failures_) {
    if (!is_secondary(rank_exit)) return rank_exit;
  }
  return failures_.front();
}

std::optional<RankExit> RootCause::exited_early() const {
  return failed() && is_secondary(cause()) ? early_exit_ : std::nullopt;
}

bool RootCause::rank_0_showed_own_error() const {
  for (const RankExit& rank_exit : failures_) {
    if (rank_exit.rank == 0 && !rank_exit.status.by_signal && !is_secondary(rank_exit)) return true;
  }
  return false;
}

std::string describe(const RankExit& rank_exit, const FailureContext& context) {
  std::string line = text("rank ", rank_exit.rank, " (pid ", rank_exit.pid, " on ", context.host, ") ");
  if (!rank_exit.has_exited && !context.blocked_by.empty()) {
    line += text("failed (exit code ", rank_exit.status.value, ") and was stopped: it was still running ",
                 context.blocked_by);
  } else if (rank_exit.status.by_signal) {
    line += "was killed by signal " + signal_name(rank_exit.status.value);
    if (rank_exit.status.value == SIGKILL)
      line += "; if the machine ran out of memory, see dmesg or use fewer ranks";
  } else {
    line += text("ended with exit code ", rank_exit.status.value);
    if (rank_exit.status.value == kPeerFailed) line += ": it lost another rank";
  }
  const int more = context.same_error;
  if (more > 0)
    line += text(", as ", more, more == 1 ? " more rank" : " more ranks", " did with the same error");
  if (context.stopped_others) line += "; the other ranks were stopped";
  return line;
}

}  // namespace tarantella::launch
