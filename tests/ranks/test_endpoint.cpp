// The rules of endpoints on ranks that are threads: through the memory of a node, fake or shm, and through a bad
// network.

#include <atomic>

#include "ranks/endpoint_rules.h"
#include "support/fake_network.h"
#include "support/mailbox_endpoint.h"
#include "world.h"

namespace tarantella::transport {

void run_on_endpoints(const std::string& kind, int size, const std::function<void(Endpoint&)>& body,
                      uint64_t seed) {
  const bool is_bad = kind == "bad";
  FakeNetwork network(size, seed);
  std::atomic<int> under_way{size};
  const auto end = [&](Endpoint& endpoint) {  // as long as others may wait for what is on its way
    --under_way;
    while (under_way.load() != 0) {
      if (endpoint.progress() == 0) std::this_thread::yield();
    }
    endpoint.close(Deadline::after(1s));
    EXPECT_EQ(endpoint.open(), 0u);
  };
  World world(is_bad ? "fake" : kind, size);
  world.run_memories([&](int rank, std::unique_ptr<NodeMemory> memory) {
    auto made = is_bad ? network.endpoint(rank) : make_mailbox_endpoint(std::move(memory));
    ASSERT_TRUE(made.ok()) << made.status().message();
    body(*made.value());
    end(*made.value());
  });
}

namespace {

TEST_P(Endpoints, MoveNothingOutsideProgress) {
  std::atomic<bool> looked{false};
  run([&](Endpoint& endpoint) {
    Bytes out(16, std::byte{3});
    Bytes in(16);
    if (endpoint.rank() > 1) return;
    const int peer = size() == 1 ? 0 : 1 - endpoint.rank();
    const TransferPtr sent = endpoint.send(peer, 0, out, nullptr);
    const TransferPtr received = endpoint.receive(peer, 0, in, nullptr);
    if (endpoint.rank() == 0) {
      while (!looked && size() > 1) std::this_thread::yield();
    } else {
      for (int k = 0; k < 100; ++k) (void)endpoint.progress();
      EXPECT_FALSE(received->ended());
      looked = true;
    }
    EXPECT_TRUE(await(endpoint, received, Deadline::after(kLimit)).ok());
    EXPECT_TRUE(await(endpoint, sent, Deadline::after(kLimit)).ok());
    EXPECT_TRUE(in == out);
  });
}

TEST_P(Endpoints, EndWhatIsOpenWhenTheyAreClosed) {
  std::vector<TransferPtr> transfers(static_cast<size_t>(size()));
  const auto in = std::make_shared<Bytes>(1);
  run([&](Endpoint& endpoint) {
    transfers[static_cast<size_t>(endpoint.rank())] = endpoint.receive(endpoint.rank(), 9, *in, in);
  });
  for (const TransferPtr& each : transfers) {
    EXPECT_TRUE(each->ended());
    EXPECT_EQ(each->status().code(), Code::kPeerLost);
  }
  EXPECT_EQ(in.use_count(), 1);
}

INSTANTIATE_TEST_SUITE_P(Endpoints, Endpoints,
                         testing::Combine(testing::Values("fake", "shm", "bad"),
                                          testing::Values(1, 2, 3, 4, 7)),
                         name_of_world);

/// One thread plays all ranks of a bad network.
class BadNetwork : public testing::Test {
 protected:
  /// In which calls of progress() the messages of rank 0 arrive at rank 1, each with a tag of its own.
  static std::vector<size_t> arrivals(uint64_t seed) {
    constexpr Tag kMessages = 30;
    FakeNetwork network(2, seed);
    const auto sender = network.endpoint(0);
    const auto receiver = network.endpoint(1);
    Bytes bytes(1);
    std::vector<Bytes> in(kMessages, Bytes(1));
    std::vector<TransferPtr> transfers;
    for (Tag tag = 0; tag < kMessages; ++tag) {
      (void)sender->send(1, tag, bytes, nullptr);
      transfers.push_back(receiver->receive(0, tag, in[tag], nullptr));
    }
    (void)sender->progress();
    std::vector<size_t> arrived(kMessages, SIZE_MAX);
    for (size_t tick = 1; tick <= 21; ++tick) {
      (void)receiver->progress();
      for (Tag tag = 0; tag < kMessages; ++tag) {
        if (transfers[tag]->ended()) arrived[tag] = std::min(arrived[tag], tick);
      }
    }
    return arrived;
  }
};

TEST_F(BadNetwork, DelaysAndReordersAsTheSeedSays) {
  const auto first = arrivals(1);
  EXPECT_EQ(arrivals(1), first);
  EXPECT_NE(arrivals(2), first);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_LE(*std::max_element(first.begin(), first.end()), 21u);
}

TEST_F(BadNetwork, LosesWhatIsOnItsWayThroughACutLinkAndTellsNobody) {
  FakeNetwork network(3, 1);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int rank = 0; rank < 3; ++rank) endpoints.push_back(network.endpoint(rank));
  const Bytes out(8);
  Bytes in(8);
  Bytes other(8);
  const TransferPtr lost = endpoints[1]->receive(0, 0, in, nullptr);
  const TransferPtr passed = endpoints[2]->receive(0, 0, other, nullptr);
  for (const int to : {1, 2}) (void)endpoints[0]->send(to, 0, out, nullptr);
  (void)endpoints[0]->progress();
  network.cut(0, 1);
  (void)endpoints[0]->send(1, 1, out, nullptr);
  for (int tick = 0; tick < 100; ++tick) {
    for (const auto& endpoint : endpoints) (void)endpoint->progress();
  }
  EXPECT_FALSE(lost->ended());
  EXPECT_TRUE(passed->ended());
  for (const auto& endpoint : endpoints) {
    endpoint->close(Deadline::after(50ms));  // no send is open for ever
    EXPECT_EQ(endpoint->open(), 0u);
  }
  EXPECT_EQ(network.sent(0), (FakeNetwork::Sent{3, 24}));
  EXPECT_EQ(network.sent(1), (FakeNetwork::Sent{0, 0}));
}

}  // namespace
}  // namespace tarantella::transport
