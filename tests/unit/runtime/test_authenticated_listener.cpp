#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "runtime/authenticated_listener.h"

namespace tarantella::runtime {
namespace {

/// A listener on a port of its own.
class AuthenticatedListenerTest : public testing::Test {
 protected:
  AuthenticatedListenerTest() {
    Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    place_.sin_family = AF_INET;
    place_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place_;
    auto* address = reinterpret_cast<sockaddr*>(&place_);
    EXPECT_EQ(::bind(listener.get(), address, size), 0);
    EXPECT_EQ(::listen(listener.get(), 4096), 0);
    EXPECT_EQ(::getsockname(listener.get(), address, &size), 0);
    listener_.emplace(std::move(listener), "the secret");
  }

  Fd connect() const {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place_), sizeof place_), 0);
    return socket;
  }

  /// Lets the listener work until `count` have come in, or for a while.
  std::vector<Fd> accept(size_t count, Duration limit = 10s) {
    std::vector<Fd> all;
    for (const Deadline end = Deadline::after(limit); all.size() < count && !end.passed();) {
      std::vector<pollfd> entries;
      for (const int fd : listener_->descriptors()) entries.push_back({fd, POLLIN, 0});
      (void)::poll(entries.data(), entries.size(), 50);
      for (Fd& each : listener_->accept()) all.push_back(std::move(each));
    }
    return all;
  }

  sockaddr_in place_{};
  std::optional<AuthenticatedListener> listener_;
};

TEST_F(AuthenticatedListenerTest, AcceptsWhoKnowsTheSecret) {
  bool known = false, unknown = true;
  const Fd client = connect(), unknown_client = connect();
  std::thread first([&] { known = authenticate(client.get(), "the secret", Deadline::after(10s)); });
  std::thread second([&] { unknown = authenticate(unknown_client.get(), "another", Deadline::after(10s)); });
  const std::vector<Fd> accepted = accept(1);
  first.join();
  (void)accept(1, 200ms);
  second.join();
  EXPECT_TRUE(known);
  EXPECT_FALSE(unknown);
  ASSERT_EQ(accepted.size(), 1U);
  EXPECT_EQ(::send(client.get(), "x", 1, 0), 1);
  char got = 0;
  pollfd readable{accepted[0].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 10'000), 1);
  EXPECT_EQ(::recv(accepted[0].get(), &got, 1, 0), 1);
  EXPECT_EQ(got, 'x');
}

TEST_F(AuthenticatedListenerTest, IsFoundAmongManyUnauthenticated) {
  std::vector<Fd> silent;
  for (int k = 0; k < 600; ++k) silent.push_back(connect());  // more than it keeps
  const std::string junk(100'000, 'x');
  for (int k = 0; k < 100; ++k) {
    silent.push_back(connect());
    (void)::send(silent.back().get(), junk.data(), junk.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  const Fd client = connect();
  bool known = false;
  std::thread authenticating([&] { known = authenticate(client.get(), "the secret", Deadline::after(10s)); });
  EXPECT_EQ(accept(1).size(), 1U);
  authenticating.join();
  EXPECT_TRUE(known);
  EXPECT_LE(listener_->descriptors().size(), 257U);
}

TEST_F(AuthenticatedListenerTest, TakesNoProofTwice) {
  // who stands between a client and the listener passes on what both say, and says it again later
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd client(ends[0]), ear(ends[1]), between = connect();
  std::thread authenticating(
      [&] { EXPECT_TRUE(authenticate(client.get(), "the secret", Deadline::after(10s))); });
  std::array<char, 32> said{};
  std::thread passing([&] {
    std::array<char, 16> answer{};
    for (const bool first : {true, false}) {
      EXPECT_EQ(::recv(between.get(), answer.data(), answer.size(), MSG_WAITALL), 16);
      EXPECT_EQ(::send(ear.get(), answer.data(), answer.size(), 0), 16);
      if (!first) continue;
      EXPECT_EQ(::recv(ear.get(), said.data(), said.size(), MSG_WAITALL), 32);
      EXPECT_EQ(::send(between.get(), said.data(), said.size(), 0), 32);
    }
  });
  EXPECT_EQ(accept(1).size(), 1U);
  passing.join();
  authenticating.join();
  const Fd again = connect();
  EXPECT_EQ(::send(again.get(), said.data(), said.size(), 0), 32);
  EXPECT_TRUE(accept(1, 300ms).empty());
}

TEST_F(AuthenticatedListenerTest, IsTrustedOnlyIfItKnowsTheSecret) {
  const Fd client = connect();
  bool known = true;
  std::thread authenticating(
      [&] { known = authenticate(client.get(), "the secret of others", Deadline::after(2s)); });
  EXPECT_TRUE(accept(1, 500ms).empty());
  authenticating.join();
  EXPECT_FALSE(known);
}

}  // namespace
}  // namespace tarantella::runtime
