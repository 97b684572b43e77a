#pragma once
// How the threads of the core wait for other ranks: how long each polls, yields and sleeps. All numbers are here.
//
// A call that waits for a rank of its node polls kPolls times, on a core of its own for kSpinBeforeSleep more, and
// yields kYields times. Then it sleeps until it is woken, for kCheckInterval at a time.
// A leader's call that waits for another node polls and yields until no transfer has ended for kQuiet, kYields times at
// least. Then it leaves the bytes to the progress thread and sleeps until it is woken, for kCheckInterval at a time.
// A thread that has submitted the last gradients of a step polls and yields for kSpinAfterSubmit, and then leaves the
// bytes to the progress thread. It does so on a core of its own only.
// A progress thread that waits for ranks of its node yields for kProgressThreadSpin on a core of its own. Then it
// sleeps until another thread wakes it, for kCheckInterval at a time.
// A progress thread that waits for bytes of other nodes polls and yields kPolls times, on a core of its own for
// kProgressThreadSpin. Then it sleeps for pause_between_polls() between two polls.
// A progress thread that waits for nothing sleeps until another thread wakes it, for kHeartbeat at a time.

#include <algorithm>

#include "base/clock.h"

namespace tarantella {

struct WaitPolicy {
  /// Polls of a word, or for bytes, before anything else is done. 300 polls of a word take as long as a small message
  /// between two cores.
  static constexpr int kPolls = 300;
  /// How long a call on a core of its own spins. About as long as falling asleep and waking up (37 to 47 us measured):
  /// to poll for so long costs at most twice what sleeping at once would. 1 and 20 ms changed nothing in training
  /// (docs/performance.md). By the clock, since a pause takes 10 to 140 cycles, by processor.
  static constexpr Duration kSpinBeforeSleep = 40us;
  /// Pauses between two reads of the clock, each of which takes some 40 ns.
  static constexpr int kPausesPerClockRead = 64;
  /// Gives a rank that shares the core the chance to come, however long others run there.
  static constexpr int kYields = 50;

  /// What a small message takes between two machines. The sums of a small network come sooner, and no thread is woken
  /// for them: two wake-ups were a fifth of the time of 64 KiB.
  static constexpr Duration kSpinAfterSubmit = 100us;
  /// No transfer between nodes has ended for so long: the next one does not come soon, or waits for one that has not
  /// begun.
  static constexpr Duration kQuiet = 2ms;
  /// How long a progress thread on a core of its own spins. Longer than ranks usually wait for one another, since
  /// waking up takes as long as reducing a small network's gradients; and long enough that the core does not go idle
  /// within a step.
  static constexpr Duration kProgressThreadSpin = 60ms;
  /// Polls before anything else is checked, on a thread that only waits for bytes.
  static constexpr int kPollsPerCheck = 4;
  /// Polls of transfers that have begun for one probe for a new message, which takes MPI as long as a short message.
  static constexpr unsigned kPollsPerProbe = 8;

  /// The longest sleep of a rank that waits for another; then it checks whether that one may still come.
  static constexpr Duration kCheckInterval = 50ms;
  /// How often a rank shows that it runs, and checks whether the others do.
  static constexpr Duration kHeartbeat = 1s;

  /// The sleep between two polls for bytes where nothing has ended for `quiet`: a small part of that, so the transfer
  /// hardly takes longer, and a wait of 5 seconds for a late node takes 4 % of a core. No shorter than a sleep takes.
  static constexpr Duration pause_between_polls(Duration quiet) {
    return std::clamp<Duration>(quiet / 64, kSpinBeforeSleep, kQuiet);
  }
};

}  // namespace tarantella
