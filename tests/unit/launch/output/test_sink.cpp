#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "launch/output/sink.h"

namespace tarantella::launch {
namespace {

TEST(Sink, WritesAllInPieces) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  Sink sink(ends[1]);
  EXPECT_TRUE(sink.idle());
  sink.put(std::string(30000, 'x'));
  EXPECT_FALSE(sink.idle());
  while (!sink.idle()) sink.write_some();
  std::string read(40000, ' ');
  EXPECT_EQ(::read(ends[0], read.data(), read.size()), 30000);
  sink.put(std::string(300000, 'x'));
  EXPECT_TRUE(sink.full());
  for (int tries = 0; tries < 100; ++tries) sink.write_some();  // a full pipe: nothing is lost, nobody blocks
  EXPECT_FALSE(sink.idle());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Sink, DropsEverythingOnceItsReaderIsGone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  auto* const before = ::signal(SIGPIPE, SIG_IGN);
  Sink sink(ends[1]);
  sink.put("lost");
  sink.write_some();
  EXPECT_TRUE(sink.idle());
  ::signal(SIGPIPE, before);
  ::close(ends[1]);
}

}  // namespace
}  // namespace tarantella::launch
