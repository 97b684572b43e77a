// Runs under mpiexec. Without a word: the tests of gtest, then close(). With one, a life that ends in another way:
//   midst    the last node is killed in the midst of its transfers; the others say how long close() takes
//   gone     the same, before its transfers
//   idle     the same, and nothing is sent to it afterwards
//   busy     the last node does not come to close(); the same
//   other    expects one node more than there are, and prints the error
//   absent   the last node does not start MPI; the others print the error

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "mpi/nodes.h"
#include "transport/mpi/mpi_start.h"

namespace mpi_tests {
namespace {

using namespace tarantella;
using namespace tarantella::transport;

std::unique_ptr<Endpoint> the_wire;

int from_environment(const char* of_hydra, const char* of_openmpi, int otherwise) {
  for (const char* name : {of_hydra, of_openmpi}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return otherwise;
}

int node() { return from_environment("PMI_RANK", "OMPI_COMM_WORLD_RANK", 0); }

std::string transport() {
  const char* value = std::getenv("TNT_TRANSPORT");
  return value != nullptr ? value : "";
}

/// The others' lives after one has ended, or not come. Returns the seconds that close() took.
double close_alone(Endpoint& endpoint, Duration limit) {
  const auto begin = Clock::now();
  endpoint.close(Deadline::after(limit));
  return in_seconds(Clock::now() - begin);
}

int leave_one_behind(const std::string& how) {
  Endpoint& all = endpoint();
  const int last = all.size() - 1;
  std::vector<std::byte> out(size_t{64} << 20);
  std::vector<std::byte> in(out.size());
  if (all.rank() == last) {
    const TransferPtr open = all.receive(0, 1, std::span(in).first(16), nullptr);
    meet(all);
    std::vector<TransferPtr> arriving;
    for (int peer = 0; peer < last && how == "midst"; ++peer)
      arriving.push_back(all.receive(peer, 2, in, nullptr));
    for (const Deadline moved = Deadline::after(5ms); !arriving.empty() && !moved.passed();)
      (void)all.progress();
    if (how != "busy") (void)raise(SIGKILL);
    std::this_thread::sleep_for(4s);
    std::_Exit(0);
  }
  meet(all);
  if (how != "midst") std::this_thread::sleep_for(300ms);
  const TransferPtr received = all.receive(last, 3, in, nullptr);
  TransferPtr sent;
  if (how != "idle") sent = all.send(last, 2, out, nullptr);
  for (const Deadline idle = Deadline::after(300ms); !idle.passed();) (void)all.progress();
  const double seconds = close_alone(all, 1s);
  drop_endpoint();
  const std::string said = sent != nullptr ? sent->status().message() : "nothing";
  // one call, since the nodes share a pipe
  const std::string line = text("node ", node(), " closed in ", seconds, " s; sent: ", said,
                                "; received: ", received->status().message(), "\n");
  (void)!write(STDOUT_FILENO, line.data(), line.size());
  std::_Exit(0);
}

int expect_another() {
  const auto made = make_mpi_endpoint(transport(), node(), nodes() + 1, Deadline::after(60s), 60s);
  std::printf("%s\n", made.status().message().c_str());
  return made.ok() ? 1 : 0;
}

int leave_one_out() {
  if (node() == nodes() - 1) {
    std::this_thread::sleep_for(4s);
    return 0;
  }
  const auto made = make_mpi_endpoint(transport(), node(), nodes(), Deadline::after(2s), 900ms);
  const std::string line = made.status().message() + "\n";
  (void)!write(STDOUT_FILENO, line.data(), line.size());
  return made.ok() ? 1 : 0;  // with all that an end runs, beside the thread in MPI
}

}  // namespace

int nodes() { return from_environment("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", 1); }

Endpoint& endpoint() {
  if (the_wire == nullptr) {
    auto made = make_mpi_endpoint(transport(), node(), nodes(), Deadline::after(60s), 60s);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().message().c_str());
      std::_Exit(1);
    }
    the_wire = std::move(made).value();
  }
  return *the_wire;
}

void drop_endpoint() { the_wire.reset(); }

void meet(Endpoint& endpoint) {
  constexpr Tag kBarrierTag = kTags - 2;
  std::vector<TransferPtr> transfers;
  for (int peer = 0; peer < endpoint.size(); ++peer) {
    transfers.push_back(endpoint.receive(peer, kBarrierTag, {}, nullptr));
    transfers.push_back(endpoint.send(peer, kBarrierTag, {}, nullptr));
  }
  for (const TransferPtr& each : transfers) {
    const Status status = await(endpoint, each, Deadline::after(60s));
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace mpi_tests

int main(int argc, char** argv) {
  using namespace mpi_tests;
  testing::InitGoogleTest(&argc, argv);
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "midst" || word == "gone" || word == "idle" || word == "busy") return leave_one_behind(word);
  if (word == "other") return expect_another();
  if (word == "absent") return leave_one_out();
  if (node() != 0) {  // one of them is enough, except for failures
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    struct Failures : testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& part) override {
        if (part.failed())
          std::fprintf(stderr, "node %d: %s:%d: %s\n", node(), part.file_name(), part.line_number(),
                       part.message());
      }
    };
    listeners.Append(new Failures);
  }
  const int failed = RUN_ALL_TESTS();
  const double seconds = close_alone(endpoint(), tarantella::Duration(5s));
  drop_endpoint();
  if (node() == 0) std::printf("closed in %.3f s\n", seconds);
  return failed;
}
