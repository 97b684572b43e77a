#include "launch/first_cause.h"

#include <csignal>

namespace tarantella::launch {
namespace {

bool blames_another(const FirstCause::Ending& ending) {
  return !ending.exit.by_signal && ending.exit.value == kPeerFailed;
}

}  // namespace

void FirstCause::reported(const Ending& ending, Clock::time_point when) {
  if (failures_.empty()) first_failure_ = when;
  failures_.push_back(ending);
  failures_.back().ended = false;
}

void FirstCause::ended(const Ending& ending, Clock::time_point when) {
  if (ending.rank == 0) master_ended_ = true;
  for (Ending& known : failures_) {
    if (known.rank != ending.rank) continue;
    known.ended = true;
    if (!ending.exit.ok()) known.exit = ending.exit;
    return;
  }
  if (ending.exit.ok()) {
    if (failures_.empty() && !left_) left_ = ending;
    return;
  }
  if (failures_.empty()) first_failure_ = when;
  failures_.push_back(ending);
}

Clock::time_point FirstCause::deadline() const {
  const bool blamed_runs = blames_another(cause()) || !cause().ended;
  return first_failure_ + (blamed_runs ? kGraceOfTheBlamed : kGrace);
}

bool FirstCause::settled() const {
  return failed() && master_ended_ && cause().ended && !blames_another(cause());
}

const FirstCause::Ending& FirstCause::cause() const {
  for (const Ending& ending : failures_) {
    if (!blames_another(ending)) return ending;
  }
  return failures_.front();
}

std::optional<FirstCause::Ending> FirstCause::left_early() const {
  return failed() && blames_another(cause()) ? left_ : std::nullopt;
}

bool FirstCause::master_spoke() const {
  for (const Ending& ending : failures_) {
    if (ending.rank == 0 && !ending.exit.by_signal && !blames_another(ending)) return true;
  }
  return false;
}

std::string describe(const FirstCause::Ending& ending, const Circumstances& circumstances) {
  std::string line = text("rank ", ending.rank, " (pid ", ending.pid, " on ", circumstances.host, ") ");
  if (!ending.ended && !circumstances.held_by.empty()) {
    line += text("failed (exit code ", ending.exit.value, ") and was stopped: it was still running ",
                 circumstances.held_by);
  } else if (ending.exit.by_signal) {
    line += "was killed by signal " + signal_name(ending.exit.value);
    if (ending.exit.value == SIGKILL)
      line += "; if the machine ran out of memory, see dmesg or use fewer ranks";
  } else {
    line += text("ended with exit code ", ending.exit.value);
    if (ending.exit.value == kPeerFailed) line += ": it lost another rank";
  }
  const int more = circumstances.same_error;
  if (more > 0)
    line += text(", as ", more, more == 1 ? " more rank" : " more ranks", " did with the same error");
  if (circumstances.stopped_others) line += "; the other ranks were stopped";
  return line;
}

}  // namespace tarantella::launch
