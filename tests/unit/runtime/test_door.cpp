#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "runtime/door.h"

namespace tarantella::runtime {
namespace {

/// A door on a port of its own.
class DoorTest : public testing::Test {
 protected:
  DoorTest() {
    Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    place_.sin_family = AF_INET;
    place_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place_;
    auto* address = reinterpret_cast<sockaddr*>(&place_);
    EXPECT_EQ(::bind(listener.get(), address, size), 0);
    EXPECT_EQ(::listen(listener.get(), 4096), 0);
    EXPECT_EQ(::getsockname(listener.get(), address, &size), 0);
    door_.emplace(std::move(listener), "the secret");
  }

  Fd connect() const {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place_), sizeof place_), 0);
    return socket;
  }

  /// Lets the door work until `count` have come in, or for a while.
  std::vector<Fd> admit(size_t count, Duration limit = 10s) {
    std::vector<Fd> all;
    for (const Deadline end = Deadline::after(limit); all.size() < count && !end.passed();) {
      std::vector<pollfd> entries;
      for (const int fd : door_->descriptors()) entries.push_back({fd, POLLIN, 0});
      (void)::poll(entries.data(), entries.size(), 50);
      for (Fd& each : door_->admit()) all.push_back(std::move(each));
    }
    return all;
  }

  sockaddr_in place_{};
  std::optional<Door> door_;
};

TEST_F(DoorTest, LetsInWhoKnowsTheSecret) {
  bool known = false, unknown = true;
  const Fd guest = connect(), stranger = connect();
  std::thread first([&] { known = knock(guest.get(), "the secret", Deadline::after(10s)); });
  std::thread second([&] { unknown = knock(stranger.get(), "another", Deadline::after(10s)); });
  const std::vector<Fd> admitted = admit(1);
  first.join();
  (void)admit(1, 200ms);
  second.join();
  EXPECT_TRUE(known);
  EXPECT_FALSE(unknown);
  ASSERT_EQ(admitted.size(), 1U);
  EXPECT_EQ(::send(guest.get(), "x", 1, 0), 1);
  char got = 0;
  pollfd readable{admitted[0].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 10'000), 1);
  EXPECT_EQ(::recv(admitted[0].get(), &got, 1, 0), 1);
  EXPECT_EQ(got, 'x');
}

TEST_F(DoorTest, IsFoundAmongManyStrangers) {
  std::vector<Fd> silent;
  for (int k = 0; k < 600; ++k) silent.push_back(connect());  // more than it keeps
  const std::string junk(100'000, 'x');
  for (int k = 0; k < 100; ++k) {
    silent.push_back(connect());
    (void)::send(silent.back().get(), junk.data(), junk.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  const Fd guest = connect();
  bool known = false;
  std::thread knocking([&] { known = knock(guest.get(), "the secret", Deadline::after(10s)); });
  EXPECT_EQ(admit(1).size(), 1U);
  knocking.join();
  EXPECT_TRUE(known);
  EXPECT_LE(door_->descriptors().size(), 257U);
}

TEST_F(DoorTest, TakesNoWordTwice) {
  // who stands between a guest and the door passes on what both say, and says it again later
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd guest(ends[0]), ear(ends[1]), between = connect();
  std::thread knocking([&] { EXPECT_TRUE(knock(guest.get(), "the secret", Deadline::after(10s))); });
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
  EXPECT_EQ(admit(1).size(), 1U);
  passing.join();
  knocking.join();
  const Fd again = connect();
  EXPECT_EQ(::send(again.get(), said.data(), said.size(), 0), 32);
  EXPECT_TRUE(admit(1, 300ms).empty());
}

TEST_F(DoorTest, IsOnlyAGuestsIfTheHostKnowsTheSecret) {
  const Fd guest = connect();
  bool known = true;
  std::thread knocking([&] { known = knock(guest.get(), "the secret of others", Deadline::after(2s)); });
  EXPECT_TRUE(admit(1, 500ms).empty());
  knocking.join();
  EXPECT_FALSE(known);
}

}  // namespace
}  // namespace tarantella::runtime
