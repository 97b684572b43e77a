#pragma once
// What a wire promises (wire.h) wherever its ranks run, as threads or as processes: random schedules, and each rule
// alone. For one file of a program, which defines run_on_wires() and instantiates Wires.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "transport/wire.h"

namespace tarantella::transport {

using Bytes = std::vector<std::byte>;

constexpr Duration kLimit = 60s;

/// Calls body(wire) on each rank of `size` that runs in this process, then progress() until all ranks have come there.
/// A bad network behaves as `seed` says.
void run_on_wires(const std::string& kind, int size, const std::function<void(Wire&)>& body, uint64_t seed);

/// Parametrised by the kind of wire and the number of ranks.
class Wires : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  void run(const std::function<void(Wire&)>& body, uint64_t seed = 1) {
    run_on_wires(std::get<0>(GetParam()), size(), body, seed);
  }

  /// Sends `bytes` as one message and waits for it; the same to receive one.
  static Status send(Wire& wire, int to, Tag tag, const Bytes& bytes) {
    return await(wire, wire.send(to, tag, bytes, nullptr), Deadline::after(kLimit));
  }
  static Status receive(Wire& wire, int from, Tag tag, Bytes& bytes) {
    return await(wire, wire.receive(from, tag, bytes, nullptr), Deadline::after(kLimit));
  }
};

struct Message {
  int from;
  int to;
  Tag tag;
  size_t length;
  size_t number;

  Bytes bytes() const {
    Bytes all(length);
    uint32_t random = static_cast<uint32_t>(number);
    for (std::byte& each : all) each = static_cast<std::byte>((random = random * 1664525 + 1013904223) >> 24);
    return all;
  }
};

/// A message of a schedule on its way, at one of its ends.
struct End {
  const Message* message;
  Bytes bytes;
  Request request;
};

inline std::vector<Message> random_messages(uint64_t seed, int size) {
  std::mt19937_64 random(seed);
  const auto rank = [&] { return static_cast<int>(random() % static_cast<uint64_t>(size)); };
  std::vector<Message> messages(20 + random() % 60);
  for (size_t k = 0; k < messages.size(); ++k) {
    const size_t longest = random() % 8 == 0 ? 200'000 : 300;
    messages[k] = {rank(), rank(), static_cast<Tag>(random() % 3 == 0 ? kTags - 1 : random() % 2),
                   random() % longest, k};
  }
  return messages;
}

/// Starts this rank's ends of all messages: sends and receives of each peer and tag in order, else in any order, with
/// calls of progress() in between.
inline void play(Wire& wire, const std::vector<Message>& messages, uint64_t seed) {
  std::mt19937_64 random(seed * 64 + static_cast<uint64_t>(wire.rank()));
  std::map<std::tuple<Transfer::Kind, int, Tag>, std::vector<const Message*>> channels;
  for (const Message& each : messages) {
    if (each.from == wire.rank()) channels[{Transfer::Kind::kSend, each.to, each.tag}].push_back(&each);
    if (each.to == wire.rank()) channels[{Transfer::Kind::kReceive, each.from, each.tag}].push_back(&each);
  }
  for (auto& [channel, list] : channels) std::reverse(list.begin(), list.end());
  std::vector<std::unique_ptr<End>> ends;
  while (!channels.empty()) {
    auto chosen = channels.begin();
    std::advance(chosen, random() % channels.size());
    const auto [kind, peer, tag] = chosen->first;
    const bool sends = kind == Transfer::Kind::kSend;
    auto end = std::make_unique<End>();
    end->message = chosen->second.back();
    end->bytes = sends ? end->message->bytes() : Bytes(end->message->length + random() % 3);
    end->request =
        sends ? wire.send(peer, tag, end->bytes, nullptr) : wire.receive(peer, tag, end->bytes, nullptr);
    ends.push_back(std::move(end));
    chosen->second.pop_back();
    if (chosen->second.empty()) channels.erase(chosen);
    for (uint64_t k = random() % 4; k > 0; --k) (void)wire.progress();
  }
  for (const auto& end : ends) {
    const Status status = await(wire, end->request, Deadline::after(kLimit));
    ASSERT_TRUE(status.ok()) << status.message() << ", seed " << seed << ", message " << end->message->number;
    if (end->request->kind == Transfer::Kind::kSend) continue;
    ASSERT_EQ(end->request->length(), end->message->length);
    end->bytes.resize(end->message->length);
    ASSERT_TRUE(end->bytes == end->message->bytes())
        << "seed " << seed << ", message " << end->message->number;
  }
}

TEST_P(Wires, CarryRandomSchedules) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto messages = random_messages(seed, size());
    run([&](Wire& wire) { play(wire, messages, seed); }, seed);
  }
}

TEST_P(Wires, KeepTheOrderWithinATagAndLetOthersOvertake) {
  run([&](Wire& wire) {
    const int peer = (wire.rank() + 1) % size();
    const int from = (wire.rank() + size() - 1) % size();
    std::vector<Bytes> sent;
    std::vector<Request> sends;
    for (size_t k = 0; k < 20; ++k) sent.emplace_back(k + 1, static_cast<std::byte>(k));
    for (const Bytes& each : sent) sends.push_back(wire.send(peer, 7, each, nullptr));
    const Bytes late(5, std::byte{99});
    sends.push_back(wire.send(peer, 8, late, nullptr));
    Bytes got(5);
    ASSERT_TRUE(receive(wire, from, 8, got).ok());  // before any of tag 7
    EXPECT_TRUE(got == late);
    for (const Bytes& each : sent) {
      Bytes next(each.size());
      ASSERT_TRUE(receive(wire, from, 7, next).ok());
      EXPECT_TRUE(next == each);
    }
    for (const Request& each : sends) EXPECT_TRUE(await(wire, each, Deadline::after(kLimit)).ok());
  });
}

TEST_P(Wires, KeepTheOrderOfMessagesThatArriveWhileTheyLook) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  constexpr Tag kOthers = 20;  // receives between two of one tag, so that looking at them takes time
  constexpr int kRounds = 200;
  run([](Wire& wire) {
    for (int round = 0; round < kRounds && wire.rank() < 2; ++round) {
      std::vector<Bytes> bytes(kOthers + 2, Bytes(1));
      std::vector<Request> requests;
      const auto start = [&](Tag tag, Bytes& one) {
        requests.push_back(wire.rank() == 0 ? wire.send(1, tag, one, nullptr)
                                            : wire.receive(0, tag, one, nullptr));
      };
      Bytes& first = bytes[kOthers];
      Bytes& second = bytes[kOthers + 1];
      if (wire.rank() == 0) second[0] = std::byte{1};
      start(kOthers, first);
      if (wire.rank() == 0) start(kOthers, second);
      for (Tag tag = 0; tag < kOthers; ++tag) start(tag, bytes[tag]);
      if (wire.rank() == 1) start(kOthers, second);
      for (const Request& each : requests) {
        const Status status = await(wire, each, Deadline::after(kLimit));
        ASSERT_TRUE(status.ok()) << status.message();
      }
      EXPECT_EQ(first[0], std::byte{0}) << "round " << round;
      EXPECT_EQ(second[0], std::byte{1}) << "round " << round;
    }
  });
}

TEST_P(Wires, TakeShorterMessagesAndRefuseLongerOnes) {
  run([&](Wire& wire) {
    const int peer = size() - 1 - wire.rank();
    const Bytes sent(100, std::byte{1});
    std::vector<Request> sends;
    for (int k = 0; k < 3; ++k) sends.push_back(wire.send(peer, 0, sent, nullptr));
    Bytes more(200);
    Bytes less(99);
    Bytes same(100);
    const Request longer = wire.receive(peer, 0, more, nullptr);
    EXPECT_TRUE(await(wire, longer, Deadline::after(kLimit)).ok());
    EXPECT_EQ(longer->length(), 100u);
    const Status refused = receive(wire, peer, 0, less);
    EXPECT_EQ(refused.code(), Code::kMismatch);
    EXPECT_NE(refused.message().find("a message of 100 bytes came from rank"), std::string::npos)
        << refused.message();
    EXPECT_TRUE(receive(wire, peer, 0, same).ok());
    EXPECT_TRUE(same == sent);
    for (const Request& each : sends) EXPECT_TRUE(await(wire, each, Deadline::after(kLimit)).ok());
  });
}

TEST_P(Wires, RefuseRanksAndTagsThatDoNotExist) {
  run([&](Wire& wire) {
    Bytes bytes(1);
    for (const auto& [peer, tag] : {std::pair<int, Tag>{-1, 0}, {size(), 0}, {0, kTags}}) {
      const Request request = wire.send(peer, tag, bytes, nullptr);
      EXPECT_TRUE(request->ended());
      EXPECT_EQ(request->status().code(), Code::kInvalidArgument);
      EXPECT_EQ(receive(wire, peer, tag, bytes).code(), Code::kInvalidArgument);
    }
  });
}

TEST_P(Wires, EndAWaitAtItsDeadlineAndLetGoOfTheBytes) {
  run([&](Wire& wire) {
    auto bytes = std::make_shared<Bytes>(10);
    const Request request = wire.receive(0, 0, *bytes, bytes);
    const Status status = await(wire, request, Deadline::after(20ms));
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("no message came from rank 0 in time"), std::string::npos);
    (void)wire.progress();
    EXPECT_TRUE(request->ended());
    EXPECT_EQ(request->status().code(), Code::kPeerLost);
    EXPECT_EQ(bytes.use_count(), 1);
    // its message, had it come, would have been the next one's
    const Request never = wire.receive(0, 1, *bytes, bytes);
    wire.cancel(never);
    (void)wire.progress();
    EXPECT_TRUE(never->ended());
    EXPECT_EQ(wire.open(), 0u);
  });
}

TEST_P(Wires, KeepTheOwnerOfTheBytesUntilTheEnd) {
  run([&](Wire& wire) {
    std::vector<std::weak_ptr<Bytes>> kept;
    std::vector<Request> requests;
    for (int peer = 0; peer < size(); ++peer) {
      auto out = std::make_shared<Bytes>(100'000, static_cast<std::byte>(peer));
      requests.push_back(wire.send(peer, 3, *out, out));
      kept.emplace_back(out);
      auto in = std::make_shared<Bytes>(100'000);
      requests.push_back(wire.receive(peer, 3, *in, in));
      kept.emplace_back(in);
    }
    for (size_t k = 0; k < requests.size(); ++k) {
      EXPECT_FALSE(kept[k].expired() && !requests[k]->ended());
      EXPECT_TRUE(await(wire, requests[k], Deadline::after(kLimit)).ok());
      EXPECT_TRUE(kept[k].expired());
    }
  });
}

TEST_P(Wires, TakeTransfersFromAnyThreadWhileOneMovesThem) {
  constexpr int kThreads = 3, kMessages = 50;
  run([&](Wire& wire) {
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const int peer = (wire.rank() + 1) % size();
        const int from = (wire.rank() + size() - 1) % size();
        for (int k = 0; k < kMessages; ++k) {
          const Bytes out(static_cast<size_t>(k), static_cast<std::byte>(t));
          Bytes in(static_cast<size_t>(k));
          const Request received = wire.receive(from, static_cast<Tag>(t), in, nullptr);
          const Request sent = wire.send(peer, static_cast<Tag>(t), out, nullptr);
          const Deadline limit = Deadline::after(kLimit);
          while ((!received->ended() || !sent->ended()) && !limit.passed()) std::this_thread::yield();
          ASSERT_TRUE(received->ended() && sent->ended());
          ASSERT_TRUE(in == out);
        }
        --running;
      });
    }
    while (running.load() != 0) {
      (void)wire.progress();
      std::this_thread::yield();
    }
    for (std::thread& each : threads) each.join();
  });
}

}  // namespace tarantella::transport
