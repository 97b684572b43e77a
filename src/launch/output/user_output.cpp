#include "launch/output/user_output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr int kPatienceMs = 10 * 60 * 1000;
constexpr int kHurriedMs = 2000;

}  // namespace

UserOutput::UserOutput() : stdout_(STDOUT_FILENO), stderr_(STDERR_FILENO) {}

void UserOutput::put(bool is_err, std::string_view data) { (is_err ? stderr_ : stdout_).put(data); }

void UserOutput::put_message(const std::string& line) { stderr_.put(message_line(line)); }

bool UserOutput::full(bool is_err) const { return (is_err ? stderr_ : stdout_).full(); }

void UserOutput::watch(Poller& poller, std::function<void()>) {
  for (Sink* sink : {&stdout_, &stderr_}) {
    if (!sink->idle()) poller.add(sink->fd(), POLLOUT, [sink] { sink->write_some(); });
  }
}

int UserOutput::finish(int code, const std::string& message, Signals& signals, bool hurried) {
  stderr_.put(message);
  flush(signals, hurried, false);
  return exit_code_after_output(code);
}

void UserOutput::flush(Signals& signals, bool hurried, bool all) {
  while (!stderr_.idle() || (all && !stdout_.idle())) {
    Poller poller;
    poller.add(signals.fd(), POLLIN);
    for (Sink* sink : {&stdout_, &stderr_}) {
      if (!sink->idle() && (all || sink == &stderr_)) {
        poller.add(sink->fd(), POLLOUT, [sink] { sink->write_some(); });
      }
    }
    if (!poller.wait(hurried ? kHurriedMs : kPatienceMs)) return;
    poller.handle();
    if (const auto event = signals.next(); event && event->number != SIGCHLD) return signals.put_back(*event);
  }
}

int UserOutput::exit_code_after_output(int code) const {
  const int error = stdout_.error();
  if (error == 0 || error == EPIPE) return code;
  print_message("cannot write to stdout what the ranks have printed: " +
                std::generic_category().message(error));
  return code == 0 ? kLaunchError : code;
}

}  // namespace tarantella::launch
