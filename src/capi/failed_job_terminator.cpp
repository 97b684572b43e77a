#include "capi/failed_job_terminator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/fork_count.h"
#include "base/log.h"

namespace tarantella::capi {
namespace {

// How long a rank whose job has failed may end by itself, and how long after SIGTERM. As under the launcher.
constexpr Duration kPatience = 5s;
// The exit code where another rank has failed whose own is unknown. The smallest one: a starter that returns the
// greatest code of all ranks still returns that of the rank that has failed.
constexpr int kOtherRankFailed = 1;

// What the handler of SIGTERM reads; it sets the last one.
std::atomic<int> handler_set_by{-1};         // fork_count() of the process that has set the handler
std::atomic<int> exit_code_on_sigterm{0};    // see tnt_on_sigterm()
std::atomic<bool> terminator_exists{false};  // it ends the process; else the handler does
std::atomic<bool> sigterm_pending{false};    // SIGTERM has come, and the terminator is to end the process

void end_as_by_default() {
  (void)std::signal(SIGTERM, SIG_DFL);
  (void)::kill(::getpid(), SIGTERM);
}

void handle_sigterm(int) {
  const bool is_ours = handler_set_by.load() == fork_count();
  if (is_ours && exit_code_on_sigterm.load() != 0) ::_exit(exit_code_on_sigterm.load());
  if (is_ours && terminator_exists.load()) return sigterm_pending.store(true);
  end_as_by_default();
}

}  // namespace

FailedJobTerminator::FailedJobTerminator(engine::Context& context) : context_(context) {
  terminator_exists.store(true);
  context_.progress_thread()->add(*this);
}

FailedJobTerminator::~FailedJobTerminator() {
  context_.progress_thread()->remove(*this);
  terminator_exists.store(false);
  if (!sigterm_pending.exchange(false)) return;
  if (has_failed()) end();
  end_as_by_default();
}

engine::Progressable::PollHint FailedJobTerminator::advance() {
  if (sigterm_pending.load()) return answer_sigterm();
  const Status failure = context_.group().first_cause();
  if (failure.ok()) return {};
  const auto now = Clock::now();
  failed_ = std::min(failed_, now);
  if (now - failed_ >= 2 * kPatience) end();
  if (now - failed_ >= kPatience && !sent_sigterm_) {
    sent_sigterm_ = true;
    log_line(text("rank ", context_.job_rank(context_.rank()),
                  " is terminated because its job has failed: ", failure.message()));
    (void)::kill(::getpid(), SIGTERM);
  }
  return {.within_check_interval = true};
}

engine::Progressable::PollHint FailedJobTerminator::answer_sigterm() {
  if (has_failed()) end();
  const auto now = Clock::now();
  signalled_ = std::min(signalled_, now);
  if (now - signalled_ >= context_.shorten_loss_timeout()) end_as_by_default();
  return {.within_check_interval = true};
}

bool FailedJobTerminator::has_failed() {
  collective::NodeGroup& group = context_.group();
  if (!group.first_cause().ok()) return true;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.state_of(rank) == collective::RankState::kDead) return true;
  }
  return false;
}

void FailedJobTerminator::end() {
  const int of_failed = context_.group().exit_code();
  ::_exit(of_failed != 0 ? of_failed : kOtherRankFailed);
}

Status on_sigterm(int exit_code) {
  exit_code_on_sigterm.store(exit_code);
  if (handler_set_by.exchange(fork_count()) == fork_count()) return {};
  struct sigaction now{};
  if (::sigaction(SIGTERM, nullptr, &now) != 0) return Status::system("sigaction", errno);
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return {};
  now = {};
  now.sa_handler = handle_sigterm;
  now.sa_flags = SA_RESTART;
  return ::sigaction(SIGTERM, &now, nullptr) == 0 ? Status() : Status::system("sigaction", errno);
}

}  // namespace tarantella::capi
