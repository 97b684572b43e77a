// The endpoint over an MPI that fails. Over ones that work, the rules of endpoints run in tests/mpi.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "transport/mpi/abort_guard.h"
#include "transport/mpi/mpi_endpoint.h"

namespace tarantella::transport {
namespace {

constexpr int kBroken = 7;

/// An MPI that takes all messages and has none, and whose test() fails.
constexpr TntMpi kFails{
    .version = kTntMpiVersion,
    .longest = 1 << 20,
    .resolved = nullptr,
    .library = [](char* text, size_t capacity) { std::snprintf(text, capacity, "a test"); },
    .start = nullptr,
    .isend = [](const void*, uint64_t, int32_t, int32_t, TntMpiRequest*) { return 0; },
    .isend_preposted = [](const void*, uint64_t, int32_t, int32_t, TntMpiRequest*) { return 0; },
    .irecv_preposted = [](void*, uint64_t, int32_t, int32_t, TntMpiRequest*) { return 0; },
    .improbe =
        [](TntMpiArrival* arrival) {
          *arrival = {};
          return 0;
        },
    .imrecv = nullptr,
    .test = [](int32_t, TntMpiRequest*, TntMpiEnd*, int32_t*) { return kBroken; },
    .finalize = nullptr,
    .is_busy = [](int) { return false; },
    .describe = [](int error, char* text,
                   size_t capacity) { std::snprintf(text, capacity, "error %d", error); },
};

class BrokenMpi : public testing::TestWithParam<Tag> {};

TEST_P(BrokenMpi, KeepsTheBytesOfTransfersThatItMayStillTouch) {
  auto bytes = std::make_shared<std::vector<std::byte>>(100);
  const std::weak_ptr<void> of_send = bytes;
  auto endpoint = endpoint_over(kFails, 0, 2, true);
  const TransferPtr sent = endpoint->send(1, GetParam(), *bytes, bytes);
  bytes = std::make_shared<std::vector<std::byte>>(100);
  const std::weak_ptr<void> of_receive = bytes;
  const TransferPtr received = endpoint->receive(1, GetParam(), *bytes, bytes);
  bytes.reset();
  EXPECT_EQ(endpoint->progress(), 2U);
  EXPECT_EQ(sent->status().code(), Code::kPeerLost);
  EXPECT_NE(sent->status().message().find("cannot send to machine 1: error 7"), std::string::npos)
      << sent->status().message();
  EXPECT_EQ(received->status().code(), Code::kPeerLost);
  endpoint.reset();
  EXPECT_FALSE(of_send.expired());
  EXPECT_EQ(of_receive.expired(), GetParam() < kFirstPrepostedTag)
      << "MPI has it at once only if it is pre-posted";
}

TEST_P(BrokenMpi, IsNotCalledAgainOnceItHasAborted) {
  static int calls;
  calls = 0;
  TntMpi aborts = kFails;
  aborts.test = [](int32_t, TntMpiRequest*, TntMpiEnd*, int32_t*) -> int { std::abort(); };
  aborts.irecv_preposted = [](void*, uint64_t, int32_t, int32_t, TntMpiRequest*) { return ++calls, 0; };
  aborts.isend = aborts.isend_preposted = [](const void*, uint64_t, int32_t, int32_t, TntMpiRequest*) {
    return ++calls, 0;
  };
  catch_aborts();
  auto endpoint = endpoint_over(aborts, 0, 3, true);
  auto bytes = std::make_shared<std::vector<std::byte>>(100);
  const TransferPtr sent = endpoint->send(1, GetParam(), *bytes, bytes);
  EXPECT_EQ(endpoint->progress(), 1U);
  EXPECT_EQ(sent->status().code(), Code::kPeerLost);
  EXPECT_NE(sent->status().message().find("machine 1: MPI has stopped"), std::string::npos)
      << sent->status().message();
  for (const TransferPtr& later :
       {endpoint->send(2, GetParam(), *bytes, bytes), endpoint->receive(2, GetParam(), *bytes, bytes)}) {
    EXPECT_EQ(endpoint->progress(), later->kind == Transfer::Kind::kSend ? 2U : 0U);
    EXPECT_EQ(later->status().code(), Code::kPeerLost);
  }
  EXPECT_EQ(calls, 1);
}

/// An MPI that can send to process 2 only while it is not busy, and whose sends end at once.
struct Busy {
  static inline bool is_busy = true;
  static inline std::vector<std::pair<int, uint64_t>> left;  ///< to whom, and how many bytes

  static TntMpi table() {
    TntMpi mpi = kFails;
    is_busy = true;
    left.clear();
    mpi.isend = mpi.isend_preposted = [](const void*, uint64_t length, int32_t to, int32_t, TntMpiRequest*) {
      if (is_busy && to == 2) return kBroken;
      left.emplace_back(to, length);
      return 0;
    };
    mpi.is_busy = [](int error) { return error == kBroken; };
    mpi.test = [](int32_t count, TntMpiRequest*, TntMpiEnd* ends, int32_t* ended) {
      for (int32_t k = 0; k < count; ++k) ends[k] = {k, 0, 0};
      *ended = count;
      return 0;
    };
    return mpi;
  }
};

TEST_P(BrokenMpi, SendsLaterAndInOrderWhatItCannotTakeNow) {
  const TntMpi mpi = Busy::table();
  const auto endpoint = endpoint_over(mpi, 0, 3, true);
  const std::vector<std::byte> bytes(100);
  const auto send = [&](int to, size_t length) {
    return endpoint->send(to, GetParam(), std::span(bytes).first(length), nullptr);
  };
  const std::vector<TransferPtr> sent{send(2, 1), send(1, 2), send(2, 3), send(2, 4)};
  EXPECT_EQ(endpoint->progress(), 1U);
  endpoint->cancel(sent[2]);
  EXPECT_EQ(endpoint->progress(), 1U);
  EXPECT_EQ(sent[2]->status().code(), Code::kPeerLost);
  EXPECT_FALSE(sent[0]->ended() || sent[3]->ended());
  Busy::is_busy = false;
  EXPECT_EQ(endpoint->progress(), 2U);
  EXPECT_TRUE(sent[0]->completed_in_full() && sent[1]->completed_in_full() && sent[3]->completed_in_full());
  EXPECT_EQ(Busy::left, (std::vector<std::pair<int, uint64_t>>{{1, 2}, {2, 1}, {2, 4}}));
}

TEST_P(BrokenMpi, EndsWithWhatItCouldNotSend) {
  const TntMpi mpi = Busy::table();
  auto endpoint = endpoint_over(mpi, 0, 3, true);
  const std::vector<std::byte> bytes(100);
  const TransferPtr sent = endpoint->send(2, GetParam(), bytes, nullptr);
  EXPECT_EQ(endpoint->progress(), 0U);
  endpoint->close(Deadline::after(10ms));
  EXPECT_TRUE(sent->ended());
  EXPECT_EQ(sent->status().code(), Code::kPeerLost);
}

INSTANTIATE_TEST_SUITE_P(Tags, BrokenMpi, testing::Values(kFirstPrepostedTag - 1, kFirstPrepostedTag));

TEST(Abort, IsLeftWhereItIsOfMpiOnly) {
  catch_aborts();
  catch_aborts();  // the second must not become what was there before the first
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(call_mpi([] { return 5; }), 5);
    EXPECT_EQ(call_mpi([]() -> int { std::abort(); }), kAborted);
  }
  EXPECT_EXIT(std::abort(), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(std::thread([] {
                (void)call_mpi([] {
                  return std::thread(std::abort).join(), 0;  // another thread's, while one is in MPI
                });
              }).join(),
              testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT((void)call_mpi([] { return kill(getpid(), SIGABRT), sleep(10), 0; }),
              testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace tarantella::transport
