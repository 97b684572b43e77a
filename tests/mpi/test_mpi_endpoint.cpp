// The rules of endpoints on processes that mpiexec has started, one a node. Every process runs the same tests, and a
// failure on any fails the job.

#include "mpi/nodes.h"
#include "ranks/endpoint_rules.h"

namespace tarantella::transport {

void run_on_endpoints(const std::string&, int, const std::function<void(Endpoint&)>& body, uint64_t) {
  Endpoint& endpoint = mpi_tests::endpoint();
  body(endpoint);
  mpi_tests::meet(endpoint);
  EXPECT_EQ(endpoint.open(), 0u);
}

namespace {

INSTANTIATE_TEST_SUITE_P(Mpi, Endpoints, testing::Values(std::tuple("mpi", mpi_tests::nodes())));

TEST(MpiEndpoint, CarriesBigMessagesInBothDirectionsAtOnce) {
  constexpr size_t kBig = size_t{64} << 20;
  Endpoint& endpoint = mpi_tests::endpoint();
  for (const size_t length : {kBig, kBig + 1, size_t{1}, size_t{0}}) {
    std::vector<Bytes> in(static_cast<size_t>(endpoint.size()), Bytes(length));
    const Bytes out(length, static_cast<std::byte>(endpoint.rank() + 1));
    std::vector<TransferPtr> transfers;
    for (int peer = 0; peer < endpoint.size(); ++peer) {
      transfers.push_back(endpoint.receive(peer, 0, in[static_cast<size_t>(peer)], nullptr));
      transfers.push_back(endpoint.send(peer, 0, out, nullptr));
    }
    for (const TransferPtr& each : transfers) {
      const Status status = await(endpoint, each, Deadline::after(kLimit));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(each->length(), length);
    }
    for (int peer = 0; peer < endpoint.size(); ++peer)
      EXPECT_TRUE(in[static_cast<size_t>(peer)] == Bytes(length, static_cast<std::byte>(peer + 1)));
  }
  mpi_tests::meet(endpoint);
}

TEST(MpiEndpoint, RefusesBigMessagesThatAreTooLong) {
  Endpoint& endpoint = mpi_tests::endpoint();
  const int peer = endpoint.size() - 1 - endpoint.rank();
  const Bytes out(3'000'000);
  Bytes in(2'000'000);
  const TransferPtr sent = endpoint.send(peer, 0, out, nullptr);
  const TransferPtr received = endpoint.receive(peer, 0, in, nullptr);
  EXPECT_EQ(await(endpoint, received, Deadline::after(kLimit)).code(), Code::kMismatch);
  EXPECT_NE(received->status().message().find("where at most 2000000 were expected"), std::string::npos)
      << received->status().message();
  EXPECT_TRUE(await(endpoint, sent, Deadline::after(kLimit)).ok());
  mpi_tests::meet(endpoint);
}

TEST(MpiEndpoint, LeavesTheMessageOfACancelledReceiveToTheNext) {
  Endpoint& endpoint = mpi_tests::endpoint();
  const int peer = endpoint.size() - 1 - endpoint.rank();
  Bytes first(8);
  Bytes second(8);
  const TransferPtr given_up = endpoint.receive(peer, 1, first, nullptr);
  for (int k = 0; k < 10; ++k) (void)endpoint.progress();
  endpoint.cancel(given_up);
  (void)endpoint.progress();
  EXPECT_TRUE(given_up->ended());
  EXPECT_EQ(given_up->status().code(), Code::kPeerLost);
  mpi_tests::meet(endpoint);
  const Bytes out(8, std::byte{5});
  const TransferPtr sent = endpoint.send(peer, 1, out, nullptr);
  const TransferPtr received = endpoint.receive(peer, 1, second, nullptr);
  EXPECT_TRUE(await(endpoint, received, Deadline::after(kLimit)).ok());
  EXPECT_TRUE(await(endpoint, sent, Deadline::after(kLimit)).ok());
  EXPECT_TRUE(first == Bytes(8));
  EXPECT_TRUE(second == out);
  mpi_tests::meet(endpoint);
}

// main() closes the endpoint after this.
TEST(MpiEndpoint, MayEndWithMessagesThatNobodyHasTaken) {
  Endpoint& endpoint = mpi_tests::endpoint();
  const Bytes out(100);
  EXPECT_TRUE(await(endpoint, endpoint.send(endpoint.size() - 1 - endpoint.rank(), 77, out, nullptr),
                    Deadline::after(kLimit))
                  .ok());
  mpi_tests::meet(endpoint);
}

}  // namespace
}  // namespace tarantella::transport
