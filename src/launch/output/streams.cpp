#include "launch/output/streams.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "launch/system/pty.h"

namespace tarantella::launch {
namespace {

// For a rank that has ended. A pipe holds at most 1 MiB; a process that goes on writing must not keep the launcher
// here.
constexpr int kMostReads = 256;

}  // namespace

Streams::Streams(int ranks, int first, const Options& options, bool drops_startup_lines, LogFiles& logs,
                 Frontend& frontend)
    : prefixes_output_(options.output_on_all_devices),
      prefixes_errors_(options.shows_all_errors()),
      drops_startup_lines_(drops_startup_lines),
      first_(first),
      logs_(logs),
      frontend_(frontend) {
  for (int rank = first; rank < first + ranks; ++rank) {
    const std::string label = text(rank, frontend.rank_suffix());
    pipes_.push_back({{}, {}, LinePrefixer(label), LinePrefixer(label)});
  }
}

void Streams::watch(std::vector<Process>& ranks, Poller& poller) {
  for (Process& rank : ranks) {
    if (!frontend_.full(false)) poller.add(rank.out(), POLLIN, [this, &rank] { read_from(rank, false); });
    if (!frontend_.full(true)) poller.add(rank.err(), POLLIN, [this, &rank] { read_from(rank, true); });
  }
}

void Streams::read_from(Process& rank, bool is_err) {
  const int fd = is_err ? rank.err() : rank.out();
  char buffer[64 * 1024];
  const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes <= 0) {
    is_err ? rank.close_err() : rank.close_out();
    return;
  }
  if (is_err) copy_window_size(STDERR_FILENO, fd);
  forward(rank.rank(), is_err, {buffer, static_cast<size_t>(bytes)});
}

void Streams::forward(int rank, bool is_err, std::string_view data) {
  logs_.write(rank, is_err, data);
  if (const std::string failure = logs_.failure(); !failure.empty()) put_message("WARNING: " + failure);
  Pipes& pipes = pipes_[static_cast<size_t>(rank)];
  if (is_err && drops_startup_lines_) {
    show(rank, is_err, pipes.startup.add(data));
  } else {
    show(rank, is_err, data);
  }
}

void Streams::show(int rank, bool is_err, std::string_view data) {
  Pipes& pipes = pipes_[static_cast<size_t>(rank)];
  const bool prefixes = is_err ? prefixes_errors_ : prefixes_output_;
  if (prefixes) {
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
      read_from(rank, is_err);
    }
  }
  rank.close_out();
  rank.close_err();
  Pipes& pipes = pipes_[static_cast<size_t>(rank.rank())];
  show(rank.rank(), true, pipes.startup.finish());
  put(false, pipes.out.finish());
  put(true, pipes.err.finish());
  logs_.finish(rank.rank());
}

void Streams::put(bool is_err, std::string_view data) {
  if (!data.empty()) frontend_.put(is_err, data);
}

std::string Streams::stderr_excerpt(int rank) const {
  return pipes_[static_cast<size_t>(rank)].tail.excerpt();
}

}  // namespace tarantella::launch
