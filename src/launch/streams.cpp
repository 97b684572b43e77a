#include "launch/streams.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/host.h"
#include "launch/terminal.h"

namespace tarantella::launch {
namespace {

// For a rank that has ended. A pipe holds at most 1 MiB; a process that goes on writing must not keep the launcher
// here.
constexpr int kMostReads = 256;
constexpr int kPatienceMs = 10 * 60 * 1000;
constexpr int kHurriedMs = 2000;

}  // namespace

Streams::Streams(int ranks, int first, const Options& options, bool drops_start_lines, LogFiles& logs,
                 Connection* head)
    : marks_output_(options.output_on_all_devices),
      marks_errors_(options.shows_all_errors()),
      drops_start_lines_(drops_start_lines),
      first_(first),
      logs_(logs),
      head_(head),
      stdout_(STDOUT_FILENO),
      stderr_(STDERR_FILENO) {
  const std::string host = head == nullptr ? "" : text("@", host_name());
  for (int rank = first; rank < first + ranks; ++rank) {
    const std::string mark = text(rank, host);
    pipes_.push_back({{}, {}, LineMarker(mark), LineMarker(mark)});
  }
}

void Streams::watch(std::vector<Process>& ranks, Poller& poller) {
  if (!stdout_.idle()) poller.add(stdout_.fd(), POLLOUT, [this] { stdout_.write_some(); });
  if (!stderr_.idle()) poller.add(stderr_.fd(), POLLOUT, [this] { stderr_.write_some(); });
  for (Process& rank : ranks) {
    if (!full(false)) poller.add(rank.out(), POLLIN, [this, &rank] { take(rank, false); });
    if (!full(true)) poller.add(rank.err(), POLLIN, [this, &rank] { take(rank, true); });
  }
}

void Streams::take(Process& rank, bool is_err) {
  const int fd = is_err ? rank.err() : rank.out();
  char buffer[64 * 1024];
  const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes <= 0) {
    is_err ? rank.close_err() : rank.close_out();
    return;
  }
  if (is_err) copy_window_size(STDERR_FILENO, fd);
  pass_on(rank.rank(), is_err, {buffer, static_cast<size_t>(bytes)});
}

void Streams::pass_on(int rank, bool is_err, std::string_view data) {
  logs_.write(rank, is_err, data);
  if (const std::string failure = logs_.failure(); !failure.empty()) say("WARNING: " + failure);
  Pipes& pipes = pipes_[static_cast<size_t>(rank)];
  if (is_err && drops_start_lines_) {
    show(rank, is_err, pipes.start.add(data));
  } else {
    show(rank, is_err, data);
  }
}

void Streams::show(int rank, bool is_err, std::string_view data) {
  Pipes& pipes = pipes_[static_cast<size_t>(rank)];
  const bool marks = is_err ? marks_errors_ : marks_output_;
  if (marks) {
    put(is_err, (is_err ? pipes.err : pipes.out).add(data));
  } else if (first_ + rank == 0) {
    put(is_err, data);
  } else if (is_err) {
    pipes.tail.append(data);
  }
}

void Streams::drain(Process& rank) {
  for (const bool is_err : {false, true}) {
    for (int reads = 0; reads < kMostReads; ++reads) {
      const int fd = is_err ? rank.err() : rank.out();
      pollfd readable{fd, POLLIN, 0};
      if (fd < 0 || ::poll(&readable, 1, 0) <= 0) break;
      take(rank, is_err);
    }
  }
  rank.close_out();
  rank.close_err();
  Pipes& pipes = pipes_[static_cast<size_t>(rank.rank())];
  show(rank.rank(), true, pipes.start.finish());
  put(false, pipes.out.finish());
  put(true, pipes.err.finish());
  logs_.finish(rank.rank());
}

void Streams::put(bool is_err, std::string_view data) {
  if (head_ == nullptr) return (is_err ? stderr_ : stdout_).put(data);
  if (!data.empty()) head_->send(is_err ? Message::Kind::kError : Message::Kind::kOutput, data);
}

bool Streams::full(bool is_err) const {
  return head_ != nullptr ? head_->full() : (is_err ? stderr_ : stdout_).full();
}

std::string Streams::last_words(int rank) const {
  return pipes_[static_cast<size_t>(rank)].tail.last_words();
}

void Streams::write_rest(Signals& signals, bool hurried) {
  while (!stderr_.idle()) {
    pollfd fds[] = {{stderr_.fd(), POLLOUT, 0}, {signals.fd(), POLLIN, 0}};
    if (::poll(fds, 2, hurried ? kHurriedMs : kPatienceMs) <= 0) return;
    if (fds[0].revents != 0) {
      stderr_.write_some();
    } else if (const auto event = signals.next(); event && event->number != SIGCHLD) {
      return;
    }
  }
}

}  // namespace tarantella::launch
