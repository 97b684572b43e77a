#include "launch/system/signals.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tarantella::launch {
namespace {

constexpr std::pair<int, const char*> kNames[] = {
    {SIGHUP, "HUP"},   {SIGINT, "INT"},   {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},   {SIGTRAP, "TRAP"},
    {SIGABRT, "ABRT"}, {SIGBUS, "BUS"},   {SIGFPE, "FPE"},   {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},
    {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"}, {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"}, {SIGTERM, "TERM"},
    {SIGXCPU, "XCPU"}, {SIGXFSZ, "XFSZ"}, {SIGSYS, "SYS"}};

}  // namespace

Result<Signals> Signals::open() {
  Signals signals;
  InheritedSettings& inherited = signals.inherited_;
  ::getrlimit(RLIMIT_NOFILE, &inherited.open_files);
  const rlimit most{inherited.open_files.rlim_max, inherited.open_files.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &most);

  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &inherited.sigpipe);
  ::sigaction(SIGXFSZ, &ignore, &inherited.sigxfsz);

  // If it were ignored, as some parents leave it, no child could be waited for.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  standard.sa_flags = SA_NOCLDSTOP;
  ::sigaction(SIGCHLD, &standard, &inherited.sigchld);

  sigset_t handled;
  sigemptyset(&handled);
  sigaddset(&handled, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction now{};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&handled, number);
  }
  ::sigprocmask(SIG_BLOCK, &handled, &inherited.mask);
  signals.fd_ = Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.fd_.valid()) return Status::system("signalfd", errno);
  return signals;
}

std::optional<Signals::Event> Signals::next() {
  if (put_back_) return std::exchange(put_back_, std::nullopt);
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return Event{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

void restore(const InheritedSettings& inherited) {
  ::setrlimit(RLIMIT_NOFILE, &inherited.open_files);
  ::sigaction(SIGPIPE, &inherited.sigpipe, nullptr);
  ::sigaction(SIGXFSZ, &inherited.sigxfsz, nullptr);
  ::sigaction(SIGCHLD, &inherited.sigchld, nullptr);
  ::sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
}

void die_by_signal(int number) {
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(number, SIG_DFL);
  sigset_t alone;
  sigemptyset(&alone);
  sigaddset(&alone, number);
  ::raise(number);
  ::sigprocmask(SIG_UNBLOCK, &alone, nullptr);
  ::_exit(128 + number);
}

void suspend_until_resumed() {
  sigset_t stop_key, before;
  sigemptyset(&stop_key);
  sigaddset(&stop_key, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop_key, &before);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

bool leaves_time_to_save(int number) { return number == SIGTERM || number == SIGHUP; }

std::string signal_name(int number) {
  for (const auto& [known, name] : kNames) {
    if (known == number) return text(number, " (SIG", name, ")");
  }
  return std::to_string(number);
}

}  // namespace tarantella::launch
