#include "launch/first_cause.h"

#include <csignal>

namespace tarantella::launch {
namespace {

bool blames_another(const FirstCause::Ending& ending) {
  return !ending.exit.by_signal && ending.exit.value == kPeerFailed;
}

}  // namespace

void FirstCause::ended(const Ending& ending, Clock::time_point when) {
  if (ending.rank == 0) master_ended_ = true;
  if (ending.exit.ok()) return;
  if (failures_.empty()) first_failure_ = when;
  failures_.push_back(ending);
}

Clock::time_point FirstCause::deadline() const {
  return first_failure_ + (blames_another(cause()) ? kGraceOfTheBlamed : kGrace);
}

bool FirstCause::settled() const { return failed() && master_ended_ && !blames_another(cause()); }

const FirstCause::Ending& FirstCause::cause() const {
  for (const Ending& ending : failures_) {
    if (!blames_another(ending)) return ending;
  }
  return failures_.front();
}

bool FirstCause::master_spoke() const {
  for (const Ending& ending : failures_) {
    if (ending.rank == 0 && !ending.exit.by_signal && !blames_another(ending)) return true;
  }
  return false;
}

std::string describe(const FirstCause::Ending& ending, const std::string& host, bool stopped_others) {
  std::string line = text("rank ", ending.rank, " (pid ", ending.pid, " on ", host, ") ");
  if (ending.exit.by_signal) {
    line += "was killed by signal " + signal_name(ending.exit.value);
    if (ending.exit.value == SIGKILL)
      line += "; if the machine ran out of memory, see dmesg or use fewer ranks";
  } else {
    line += text("ended with exit code ", ending.exit.value);
  }
  if (stopped_others) line += "; the other ranks were stopped";
  return line;
}

}  // namespace tarantella::launch
