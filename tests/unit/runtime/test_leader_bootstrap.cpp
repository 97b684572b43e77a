#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "job_name.h"
#include "runtime/leader_bootstrap.h"

namespace tarantella::runtime {
namespace {

using Connected = Result<std::vector<Fd>>;

BootstrapOptions options_of(const std::string& job, int node, int nodes, const std::string& layout) {
  return {.host = "localhost", .job_id = job, .layout = layout, .node = node, .nodes = nodes};
}

/// Connects `nodes` leaders, all of which were told `layout`, except for the last: `told_last`.
std::vector<Connected> bootstrap(int nodes, const std::string& layout, const std::string& told_last) {
  const std::string job = new_job_name();
  std::vector<Connected> connected;
  for (int node = 0; node < nodes; ++node) connected.emplace_back(Status());
  std::vector<std::thread> threads;
  for (int node = 0; node < nodes; ++node) {
    threads.emplace_back([&, node] {
      const std::string& told = node == nodes - 1 ? told_last : layout;
      connected[static_cast<size_t>(node)] =
          bootstrap_leaders(options_of(job, node, nodes, told), Deadline::after(10s));
    });
  }
  for (std::thread& each : threads) each.join();
  return connected;
}

TEST(Leaders, ConnectToTheFirst) {
  const auto connected = bootstrap(3, "2,2,1", "2,2,1");
  for (const Connected& each : connected) ASSERT_TRUE(each.ok()) << each.status().message();
  ASSERT_EQ(connected[0].value().size(), 2U);
  for (size_t node : {1U, 2U}) {
    ASSERT_EQ(connected[node].value().size(), 1U);
    const char sent = static_cast<char>('0' + node);
    char got = 0;
    EXPECT_EQ(::send(connected[node].value()[0].get(), &sent, 1, 0), 1);
    EXPECT_EQ(::recv(connected[0].value()[node - 1].get(), &got, 1, 0), 1);
    EXPECT_EQ(got, sent);
  }
}

TEST(Leaders, HaveNamesOfFullLength) {
  const std::string job = (new_job_name() + std::string(64, 'x')).substr(0, 64);
  Connected connected = Status();
  std::thread first(
      [&] { connected = bootstrap_leaders(options_of(job, 0, 2, "1,1"), Deadline::after(10s)); });
  const auto second = bootstrap_leaders(options_of(job, 1, 2, "1,1"), Deadline::after(10s));
  first.join();
  EXPECT_TRUE(connected.ok()) << connected.status().message();
  EXPECT_TRUE(second.ok()) << second.status().message();
}

Fd connect_unauthenticated(int port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return {};
  return socket;
}

TEST(Leaders, DoNotWaitForTheUnauthenticated) {
  const std::string job = new_job_name();
  Connected connected = Status();
  std::thread first(
      [&] { connected = bootstrap_leaders(options_of(job, 0, 2, "1,1"), Deadline::after(4s)); });
  std::vector<Fd> silent;
  for (const Deadline soon = Deadline::after(4s); silent.size() < 3 && !soon.passed();) {
    if (Fd socket = connect_unauthenticated(port_of(job, 0)); socket.valid())
      silent.push_back(std::move(socket));
  }
  EXPECT_EQ(silent.size(), 3U);
  const auto second = bootstrap_leaders(options_of(job, 1, 2, "1,1"), Deadline::after(4s));
  first.join();
  EXPECT_TRUE(connected.ok()) << connected.status().message();
  EXPECT_TRUE(second.ok()) << second.status().message();
  char said[17];
  for (const Fd& each : silent) {
    EXPECT_EQ(::recv(each.get(), said, sizeof said, MSG_WAITALL),
              16);  // random bytes, and nothing of the job
  }
}

TEST(Leaders, MustKnowOneLayout) {
  const auto connected = bootstrap(2, "2,2", "1,1");
  EXPECT_EQ(connected[0].status().code(), Code::kMismatch);
  EXPECT_NE(connected[0].status().message().find("different numbers of ranks (machine 0: 2,2)"),
            std::string::npos);
  EXPECT_EQ(connected[1].status().message(), connected[0].status().message());
}

TEST(Leaders, NameTheMachinesThatDoNotCome) {
  const std::string job = new_job_name();
  const auto first = bootstrap_leaders(options_of(job, 0, 3, "1,1,1"), Deadline::after(100ms));
  EXPECT_EQ(first.status().code(), Code::kTimeout);
  EXPECT_NE(first.status().message().find("did not join in time: 1, 2;"), std::string::npos);
  const auto second = bootstrap_leaders(options_of(job, 1, 3, "1,1,1"), Deadline::after(100ms));
  EXPECT_EQ(second.status().code(), Code::kTimeout);
  EXPECT_NE(second.status().message().find("machine 1 found no rank 0 on host 'localhost'"),
            std::string::npos);
}

TEST(Leaders, NoticeOneThatHasEnded) {
  const std::string job = new_job_name();
  Connected connected = Status();
  std::thread first(
      [&] { connected = bootstrap_leaders(options_of(job, 0, 3, "1,1,1"), Deadline::after(20s)); });
  const auto second = bootstrap_leaders(options_of(job, 1, 3, "1,1,1"), Deadline::after(300ms));
  first.join();
  EXPECT_FALSE(second.ok());
  EXPECT_EQ(connected.status().code(), Code::kPeerLost) << connected.status().message();
}

TEST(Leaders, OfTwoJobsDoNotConnect) {
  std::thread other([] { EXPECT_TRUE(bootstrap(2, "1,1", "1,1")[0].ok()); });
  EXPECT_TRUE(bootstrap(2, "1,1", "1,1")[0].ok());
  other.join();
}

}  // namespace
}  // namespace tarantella::runtime
