// The rules of wires on processes that mpiexec has started, one a node. Every process runs the same tests, and a
// failure on any fails the job.

#include "mpi/nodes.h"
#include "ranks/wire_rules.h"

namespace tarantella::transport {

void run_on_wires(const std::string&, int, const std::function<void(Wire&)>& body, uint64_t) {
  Wire& wire = mpi_tests::wire();
  body(wire);
  mpi_tests::meet(wire);
  EXPECT_EQ(wire.open(), 0u);
}

namespace {

INSTANTIATE_TEST_SUITE_P(Mpi, Wires, testing::Values(std::tuple("mpi", mpi_tests::nodes())));

TEST(MpiWire, CarriesBigMessagesInBothDirectionsAtOnce) {
  constexpr size_t kBig = size_t{64} << 20;
  Wire& wire = mpi_tests::wire();
  for (const size_t length : {kBig, kBig + 1, size_t{1}, size_t{0}}) {
    std::vector<Bytes> in(static_cast<size_t>(wire.size()), Bytes(length));
    const Bytes out(length, static_cast<std::byte>(wire.rank() + 1));
    std::vector<Request> requests;
    for (int peer = 0; peer < wire.size(); ++peer) {
      requests.push_back(wire.receive(peer, 0, in[static_cast<size_t>(peer)], nullptr));
      requests.push_back(wire.send(peer, 0, out, nullptr));
    }
    for (const Request& each : requests) {
      const Status status = await(wire, each, Deadline::after(kLimit));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(each->length(), length);
    }
    for (int peer = 0; peer < wire.size(); ++peer)
      EXPECT_TRUE(in[static_cast<size_t>(peer)] == Bytes(length, static_cast<std::byte>(peer + 1)));
  }
  mpi_tests::meet(wire);
}

TEST(MpiWire, RefusesBigMessagesThatAreTooLong) {
  Wire& wire = mpi_tests::wire();
  const int peer = wire.size() - 1 - wire.rank();
  const Bytes out(3'000'000);
  Bytes in(2'000'000);
  const Request sent = wire.send(peer, 0, out, nullptr);
  const Request received = wire.receive(peer, 0, in, nullptr);
  EXPECT_EQ(await(wire, received, Deadline::after(kLimit)).code(), Code::kMismatch);
  EXPECT_NE(received->status().message().find("where at most 2000000 were expected"), std::string::npos)
      << received->status().message();
  EXPECT_TRUE(await(wire, sent, Deadline::after(kLimit)).ok());
  mpi_tests::meet(wire);
}

TEST(MpiWire, LeavesTheMessageOfACancelledReceiveToTheNext) {
  Wire& wire = mpi_tests::wire();
  const int peer = wire.size() - 1 - wire.rank();
  Bytes first(8);
  Bytes second(8);
  const Request given_up = wire.receive(peer, 1, first, nullptr);
  for (int k = 0; k < 10; ++k) (void)wire.progress();
  wire.cancel(given_up);
  (void)wire.progress();
  EXPECT_TRUE(given_up->ended());
  EXPECT_EQ(given_up->status().code(), Code::kPeerLost);
  mpi_tests::meet(wire);
  const Bytes out(8, std::byte{5});
  const Request sent = wire.send(peer, 1, out, nullptr);
  const Request received = wire.receive(peer, 1, second, nullptr);
  EXPECT_TRUE(await(wire, received, Deadline::after(kLimit)).ok());
  EXPECT_TRUE(await(wire, sent, Deadline::after(kLimit)).ok());
  EXPECT_TRUE(first == Bytes(8));
  EXPECT_TRUE(second == out);
  mpi_tests::meet(wire);
}

// main() closes the wire after this.
TEST(MpiWire, MayEndWithMessagesThatNobodyHasTaken) {
  Wire& wire = mpi_tests::wire();
  const Bytes out(100);
  EXPECT_TRUE(
      await(wire, wire.send(wire.size() - 1 - wire.rank(), 77, out, nullptr), Deadline::after(kLimit)).ok());
  mpi_tests::meet(wire);
}

}  // namespace
}  // namespace tarantella::transport
