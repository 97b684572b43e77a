#include "capi/ending.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/forks.h"
#include "base/log.h"

namespace tarantella::capi {
namespace {

constexpr Duration kPatience = 5s;  // as under the launcher
// Until a failure is seen that a starter has answered with SIGTERM: on this node, and on another.
constexpr Duration kNear = 1s, kFar = 4s;
constexpr int kLostAnother = 1;  // hides no other code from a starter that takes the greatest one

// What the handler of the signal reads.
std::atomic<int> owner{-1};        // forks() of the process that has set it
std::atomic<int> code{0};          // see tnt_on_sigterm()
std::atomic<bool> watched{false};  // an Ending answers
std::atomic<bool> asked{false};    // it is to

void end_as_by_default() {
  (void)std::signal(SIGTERM, SIG_DFL);
  (void)::kill(::getpid(), SIGTERM);
}

void answer(int) {
  const bool is_ours = owner.load() == forks();
  if (is_ours && code.load() != 0) ::_exit(code.load());
  if (is_ours && watched.load()) return asked.store(true);
  end_as_by_default();
}

}  // namespace

Ending::Ending(engine::Communicator& communicator, engine::Cluster* cluster)
    : communicator_(communicator), cluster_(cluster) {
  watched.store(true);
  communicator_.engine()->add(*this);
}

Ending::~Ending() {
  communicator_.engine()->remove(*this);
  watched.store(false);
  if (!asked.exchange(false)) return;
  if (has_failed()) end();
  end_as_by_default();
}

engine::Driven::Need Ending::advance() {
  if (asked.load()) return answer_sigterm();
  const Status failure = communicator_.group().first_cause();
  if (failure.ok()) return {};
  const auto now = Clock::now();
  failed_ = std::min(failed_, now);
  if (now - failed_ >= 2 * kPatience) end();
  if (now - failed_ >= kPatience && !has_told_) {
    has_told_ = true;
    log_line(text("rank ", communicator_.job_rank(communicator_.rank()),
                  " is ended, since its job has failed: ", failure.message()));
    (void)::kill(::getpid(), SIGTERM);
  }
  return {.looks = true};
}

engine::Driven::Need Ending::answer_sigterm() {
  if (has_failed()) end();
  if (cluster_ != nullptr) cluster_->expect_end();
  const auto now = Clock::now();
  signalled_ = std::min(signalled_, now);
  if (now - signalled_ >= (cluster_ == nullptr ? kNear : kFar)) end_as_by_default();
  return {.looks = true};
}

bool Ending::has_failed() {
  collective::Group& group = communicator_.group();
  if (!group.first_cause().ok()) return true;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.presence(rank) == collective::Presence::kGone) return true;
  }
  return false;
}

void Ending::end() {
  const int of_failed = communicator_.group().exit_code();
  ::_exit(of_failed != 0 ? of_failed : kLostAnother);
}

Status on_sigterm(int exit_code) {
  code.store(exit_code);
  if (owner.exchange(forks()) == forks()) return {};
  struct sigaction now{};
  if (::sigaction(SIGTERM, nullptr, &now) != 0) return Status::system("sigaction", errno);
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return {};
  now = {};
  now.sa_handler = answer;
  now.sa_flags = SA_RESTART;
  return ::sigaction(SIGTERM, &now, nullptr) == 0 ? Status() : Status::system("sigaction", errno);
}

}  // namespace tarantella::capi
