#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

namespace tarantella {
namespace {

/// Replaces stderr by a full pipe during its lifetime.
class FullStderr {
 public:
  FullStderr() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = Fd(ends[0]);
    Fd writer(ends[1]);
    const std::string page(4096, 'x');
    while (::write(writer.get(), page.data(), page.size()) > 0) {
    }
    ::fcntl(writer.get(), F_SETFL, 0);  // as the pipe of a launcher: whoever writes waits
    ::dup2(writer.get(), STDERR_FILENO);
  }
  ~FullStderr() { ::dup2(before_.get(), STDERR_FILENO); }

  /// Reads all available bytes.
  std::string drain() {
    std::string all;
    char part[4096];
    for (ssize_t got = 0; (got = ::read(reader_.get(), part, sizeof(part))) > 0;)
      all.append(part, static_cast<size_t>(got));
    return all;
  }

 private:
  Fd before_{::dup(STDERR_FILENO)};
  Fd reader_;
};

TEST(Log, DropsALineWhileStderrIsFull) {
  std::string said;
  bool blocked = false;
  {
    FullStderr full;
    std::atomic<bool> back{false};
    std::thread warns([&] {
      log_warning("one");
      back = true;
    });
    for (const Deadline limit = Deadline::after(30s); !back && !limit.passed();)
      std::this_thread::sleep_for(1ms);
    blocked = !back;
    (void)full.drain();
    warns.join();
    (void)full.drain();
    log_warning("two");
    said = full.drain();
  }
  EXPECT_FALSE(blocked);
  EXPECT_EQ(said, "tarantella: WARNING: two\n");
}

TEST(Log, SurvivesAStderrThatNobodyReads) {
  const Fd before(::dup(STDERR_FILENO));
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  log_warning("to nobody");  // no SIGPIPE
  ::dup2(before.get(), STDERR_FILENO);
}

}  // namespace
}  // namespace tarantella
