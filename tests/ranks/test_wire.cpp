// The rules of wires on ranks that are threads: through the memory of a node, fake or shm, and through a bad network.

#include <atomic>

#include "ranks/wire_rules.h"
#include "support/fake_network.h"
#include "support/mailbox_wire.h"
#include "world.h"

namespace tarantella::transport {

void run_on_wires(const std::string& kind, int size, const std::function<void(Wire&)>& body, uint64_t seed) {
  const bool is_bad = kind == "bad";
  FakeNetwork network(size, seed);
  std::atomic<int> under_way{size};
  const auto end = [&](Wire& wire) {  // as long as others may wait for what is on its way
    --under_way;
    while (under_way.load() != 0) {
      if (wire.progress() == 0) std::this_thread::yield();
    }
    wire.close(Deadline::after(1s));
    EXPECT_EQ(wire.open(), 0u);
  };
  World world(is_bad ? "fake" : kind, size);
  world.run_memories([&](int rank, std::unique_ptr<Memory> memory) {
    auto made = is_bad ? network.wire(rank) : make_mailbox_wire(std::move(memory));
    ASSERT_TRUE(made.ok()) << made.status().message();
    body(*made.value());
    end(*made.value());
  });
}

namespace {

TEST_P(Wires, MoveNothingOutsideProgress) {
  std::atomic<bool> looked{false};
  run([&](Wire& wire) {
    Bytes out(16, std::byte{3});
    Bytes in(16);
    if (wire.rank() > 1) return;
    const int peer = size() == 1 ? 0 : 1 - wire.rank();
    const Request sent = wire.send(peer, 0, out, nullptr);
    const Request received = wire.receive(peer, 0, in, nullptr);
    if (wire.rank() == 0) {
      while (!looked && size() > 1) std::this_thread::yield();
    } else {
      for (int k = 0; k < 100; ++k) (void)wire.progress();
      EXPECT_FALSE(received->ended());
      looked = true;
    }
    EXPECT_TRUE(await(wire, received, Deadline::after(kLimit)).ok());
    EXPECT_TRUE(await(wire, sent, Deadline::after(kLimit)).ok());
    EXPECT_TRUE(in == out);
  });
}

TEST_P(Wires, EndWhatIsOpenWhenTheyAreClosed) {
  std::vector<Request> requests(static_cast<size_t>(size()));
  const auto in = std::make_shared<Bytes>(1);
  run([&](Wire& wire) {
    requests[static_cast<size_t>(wire.rank())] = wire.receive(wire.rank(), 9, *in, in);
  });
  for (const Request& each : requests) {
    EXPECT_TRUE(each->ended());
    EXPECT_EQ(each->status().code(), Code::kPeerLost);
  }
  EXPECT_EQ(in.use_count(), 1);
}

INSTANTIATE_TEST_SUITE_P(Wires, Wires,
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
    const auto sender = network.wire(0);
    const auto receiver = network.wire(1);
    Bytes bytes(1);
    std::vector<Bytes> in(kMessages, Bytes(1));
    std::vector<Request> requests;
    for (Tag tag = 0; tag < kMessages; ++tag) {
      (void)sender->send(1, tag, bytes, nullptr);
      requests.push_back(receiver->receive(0, tag, in[tag], nullptr));
    }
    (void)sender->progress();
    std::vector<size_t> arrived(kMessages, SIZE_MAX);
    for (size_t tick = 1; tick <= 21; ++tick) {
      (void)receiver->progress();
      for (Tag tag = 0; tag < kMessages; ++tag) {
        if (requests[tag]->ended()) arrived[tag] = std::min(arrived[tag], tick);
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
  std::vector<std::unique_ptr<Wire>> wires;
  for (int rank = 0; rank < 3; ++rank) wires.push_back(network.wire(rank));
  const Bytes out(8);
  Bytes in(8);
  Bytes other(8);
  const Request lost = wires[1]->receive(0, 0, in, nullptr);
  const Request passed = wires[2]->receive(0, 0, other, nullptr);
  for (const int to : {1, 2}) (void)wires[0]->send(to, 0, out, nullptr);
  (void)wires[0]->progress();
  network.cut(0, 1);
  (void)wires[0]->send(1, 1, out, nullptr);
  for (int tick = 0; tick < 100; ++tick) {
    for (const auto& wire : wires) (void)wire->progress();
  }
  EXPECT_FALSE(lost->ended());
  EXPECT_TRUE(passed->ended());
  for (const auto& wire : wires) {
    wire->close(Deadline::after(50ms));  // no send is open for ever
    EXPECT_EQ(wire->open(), 0u);
  }
  EXPECT_EQ(network.sent(0), (FakeNetwork::Sent{3, 24}));
  EXPECT_EQ(network.sent(1), (FakeNetwork::Sent{0, 0}));
}

}  // namespace
}  // namespace tarantella::transport
