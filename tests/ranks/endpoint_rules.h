#pragma once
// What an endpoint promises (endpoint.h) wherever its ranks run, as threads or as processes: random schedules, and each
// rule alone. For one file of a program, which defines run_on_endpoints() and instantiates Endpoints.

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

#include "transport/endpoint.h"

namespace tarantella::transport {

using Bytes = std::vector<std::byte>;

constexpr Duration kLimit = 60s;

/// Calls body(endpoint) on each rank of `size` that runs in this process, then progress() until all ranks have come
/// there. A bad network behaves as `seed` says.
void run_on_endpoints(const std::string& kind, int size, const std::function<void(Endpoint&)>& body,
                      uint64_t seed);

/// Parametrised by the kind of endpoint and the number of ranks.
class Endpoints : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  void run(const std::function<void(Endpoint&)>& body, uint64_t seed = 1) {
    run_on_endpoints(std::get<0>(GetParam()), size(), body, seed);
  }

  /// Sends `bytes` as one message and waits for it; the same to receive one.
  static Status send(Endpoint& endpoint, int to, Tag tag, const Bytes& bytes) {
    return await(endpoint, endpoint.send(to, tag, bytes, nullptr), Deadline::after(kLimit));
  }
  static Status receive(Endpoint& endpoint, int from, Tag tag, Bytes& bytes) {
    return await(endpoint, endpoint.receive(from, tag, bytes, nullptr), Deadline::after(kLimit));
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
  TransferPtr transfer;
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
inline void play(Endpoint& endpoint, const std::vector<Message>& messages, uint64_t seed) {
  std::mt19937_64 random(seed * 64 + static_cast<uint64_t>(endpoint.rank()));
  std::map<std::tuple<Transfer::Kind, int, Tag>, std::vector<const Message*>> channels;
  for (const Message& each : messages) {
    if (each.from == endpoint.rank()) channels[{Transfer::Kind::kSend, each.to, each.tag}].push_back(&each);
    if (each.to == endpoint.rank())
      channels[{Transfer::Kind::kReceive, each.from, each.tag}].push_back(&each);
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
    end->transfer = sends ? endpoint.send(peer, tag, end->bytes, nullptr)
                          : endpoint.receive(peer, tag, end->bytes, nullptr);
    ends.push_back(std::move(end));
    chosen->second.pop_back();
    if (chosen->second.empty()) channels.erase(chosen);
    for (uint64_t k = random() % 4; k > 0; --k) (void)endpoint.progress();
  }
  for (const auto& end : ends) {
    const Status status = await(endpoint, end->transfer, Deadline::after(kLimit));
    ASSERT_TRUE(status.ok()) << status.message() << ", seed " << seed << ", message " << end->message->number;
    if (end->transfer->kind == Transfer::Kind::kSend) continue;
    ASSERT_EQ(end->transfer->length(), end->message->length);
    end->bytes.resize(end->message->length);
    ASSERT_TRUE(end->bytes == end->message->bytes())
        << "seed " << seed << ", message " << end->message->number;
  }
}

TEST_P(Endpoints, CarryRandomSchedules) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto messages = random_messages(seed, size());
    run([&](Endpoint& endpoint) { play(endpoint, messages, seed); }, seed);
  }
}

TEST_P(Endpoints, KeepTheOrderWithinATagAndLetOthersOvertake) {
  run([&](Endpoint& endpoint) {
    const int peer = (endpoint.rank() + 1) % size();
    const int from = (endpoint.rank() + size() - 1) % size();
    std::vector<Bytes> sent;
    std::vector<TransferPtr> sends;
    for (size_t k = 0; k < 20; ++k) sent.emplace_back(k + 1, static_cast<std::byte>(k));
    for (const Bytes& each : sent) sends.push_back(endpoint.send(peer, 7, each, nullptr));
    const Bytes late(5, std::byte{99});
    sends.push_back(endpoint.send(peer, 8, late, nullptr));
    Bytes got(5);
    ASSERT_TRUE(receive(endpoint, from, 8, got).ok());  // before any of tag 7
    EXPECT_TRUE(got == late);
    for (const Bytes& each : sent) {
      Bytes next(each.size());
      ASSERT_TRUE(receive(endpoint, from, 7, next).ok());
      EXPECT_TRUE(next == each);
    }
    for (const TransferPtr& each : sends) EXPECT_TRUE(await(endpoint, each, Deadline::after(kLimit)).ok());
  });
}

TEST_P(Endpoints, KeepTheOrderOfMessagesThatArriveWhileTheyLook) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  constexpr Tag kOthers = 20;  // receives between two of one tag, so that looking at them takes time
  constexpr int kRounds = 200;
  run([](Endpoint& endpoint) {
    for (int round = 0; round < kRounds && endpoint.rank() < 2; ++round) {
      std::vector<Bytes> bytes(kOthers + 2, Bytes(1));
      std::vector<TransferPtr> transfers;
      const auto start = [&](Tag tag, Bytes& one) {
        transfers.push_back(endpoint.rank() == 0 ? endpoint.send(1, tag, one, nullptr)
                                                 : endpoint.receive(0, tag, one, nullptr));
      };
      Bytes& first = bytes[kOthers];
      Bytes& second = bytes[kOthers + 1];
      if (endpoint.rank() == 0) second[0] = std::byte{1};
      start(kOthers, first);
      if (endpoint.rank() == 0) start(kOthers, second);
      for (Tag tag = 0; tag < kOthers; ++tag) start(tag, bytes[tag]);
      if (endpoint.rank() == 1) start(kOthers, second);
      for (const TransferPtr& each : transfers) {
        const Status status = await(endpoint, each, Deadline::after(kLimit));
        ASSERT_TRUE(status.ok()) << status.message();
      }
      EXPECT_EQ(first[0], std::byte{0}) << "round " << round;
      EXPECT_EQ(second[0], std::byte{1}) << "round " << round;
    }
  });
}

TEST_P(Endpoints, TakeShorterMessagesAndRefuseLongerOnes) {
  run([&](Endpoint& endpoint) {
    const int peer = size() - 1 - endpoint.rank();
    const Bytes sent(100, std::byte{1});
    std::vector<TransferPtr> sends;
    for (int k = 0; k < 3; ++k) sends.push_back(endpoint.send(peer, 0, sent, nullptr));
    Bytes more(200);
    Bytes less(99);
    Bytes same(100);
    const TransferPtr longer = endpoint.receive(peer, 0, more, nullptr);
    EXPECT_TRUE(await(endpoint, longer, Deadline::after(kLimit)).ok());
    EXPECT_EQ(longer->length(), 100u);
    const Status refused = receive(endpoint, peer, 0, less);
    EXPECT_EQ(refused.code(), Code::kMismatch);
    EXPECT_NE(refused.message().find("a message of 100 bytes came from rank"), std::string::npos)
        << refused.message();
    EXPECT_TRUE(receive(endpoint, peer, 0, same).ok());
    EXPECT_TRUE(same == sent);
    for (const TransferPtr& each : sends) EXPECT_TRUE(await(endpoint, each, Deadline::after(kLimit)).ok());
  });
}

TEST_P(Endpoints, RefuseRanksAndTagsThatDoNotExist) {
  run([&](Endpoint& endpoint) {
    Bytes bytes(1);
    for (const auto& [peer, tag] : {std::pair<int, Tag>{-1, 0}, {size(), 0}, {0, kTags}}) {
      const TransferPtr transfer = endpoint.send(peer, tag, bytes, nullptr);
      EXPECT_TRUE(transfer->ended());
      EXPECT_EQ(transfer->status().code(), Code::kInvalidArgument);
      EXPECT_EQ(receive(endpoint, peer, tag, bytes).code(), Code::kInvalidArgument);
    }
  });
}

TEST_P(Endpoints, EndAWaitAtItsDeadlineAndLetGoOfTheBytes) {
  run([&](Endpoint& endpoint) {
    auto bytes = std::make_shared<Bytes>(10);
    const TransferPtr transfer = endpoint.receive(0, 0, *bytes, bytes);
    const Status status = await(endpoint, transfer, Deadline::after(20ms));
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("no message came from rank 0 in time"), std::string::npos);
    (void)endpoint.progress();
    EXPECT_TRUE(transfer->ended());
    EXPECT_EQ(transfer->status().code(), Code::kPeerLost);
    EXPECT_EQ(bytes.use_count(), 1);
    // its message, had it come, would have been the next one's
    const TransferPtr never = endpoint.receive(0, 1, *bytes, bytes);
    endpoint.cancel(never);
    (void)endpoint.progress();
    EXPECT_TRUE(never->ended());
    EXPECT_EQ(endpoint.open(), 0u);
  });
}

TEST_P(Endpoints, KeepTheOwnerOfTheBytesUntilTheEnd) {
  run([&](Endpoint& endpoint) {
    std::vector<std::weak_ptr<Bytes>> kept;
    std::vector<TransferPtr> transfers;
    for (int peer = 0; peer < size(); ++peer) {
      auto out = std::make_shared<Bytes>(100'000, static_cast<std::byte>(peer));
      transfers.push_back(endpoint.send(peer, 3, *out, out));
      kept.emplace_back(out);
      auto in = std::make_shared<Bytes>(100'000);
      transfers.push_back(endpoint.receive(peer, 3, *in, in));
      kept.emplace_back(in);
    }
    for (size_t k = 0; k < transfers.size(); ++k) {
      EXPECT_FALSE(kept[k].expired() && !transfers[k]->ended());
      EXPECT_TRUE(await(endpoint, transfers[k], Deadline::after(kLimit)).ok());
      EXPECT_TRUE(kept[k].expired());
    }
  });
}

TEST_P(Endpoints, TakeTransfersFromAnyThreadWhileOneMovesThem) {
  constexpr int kThreads = 3, kMessages = 50;
  run([&](Endpoint& endpoint) {
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const int peer = (endpoint.rank() + 1) % size();
        const int from = (endpoint.rank() + size() - 1) % size();
        for (int k = 0; k < kMessages; ++k) {
          const Bytes out(static_cast<size_t>(k), static_cast<std::byte>(t));
          Bytes in(static_cast<size_t>(k));
          const TransferPtr received = endpoint.receive(from, static_cast<Tag>(t), in, nullptr);
          const TransferPtr sent = endpoint.send(peer, static_cast<Tag>(t), out, nullptr);
          const Deadline limit = Deadline::after(kLimit);
          while ((!received->ended() || !sent->ended()) && !limit.passed()) std::this_thread::yield();
          ASSERT_TRUE(received->ended() && sent->ended());
          ASSERT_TRUE(in == out);
        }
        --running;
      });
    }
    while (running.load() != 0) {
      (void)endpoint.progress();
      std::this_thread::yield();
    }
    for (std::thread& each : threads) each.join();
  });
}

}  // namespace tarantella::transport
