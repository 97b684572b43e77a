#include "transport/mpi/mpi_endpoint.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/wait_policy.h"
#include "transport/mpi/abort_guard.h"
#include "transport/mpi/library.h"

namespace tarantella::transport {
namespace {

constexpr Duration kFinalize = 1s;
constexpr Duration kPause = 200us;
constexpr Duration kLivenessInterval = 500ms;

/// MPI gets a pre-posted receive at once. All others are matched here, and MPI gets one when its message is there and
/// its length known: what MPI does with a message that is too long, or a receive that is
/// cancelled, differs from one to another, and some end the process.
class MpiEndpoint final : public Endpoint {
 public:
  MpiEndpoint(const TntMpi& mpi, int rank, int size, bool finalizes)
      : Endpoint(rank, size), mpi_(mpi), finalizes_(finalizes) {}
  MpiEndpoint(const MpiEndpoint&) = delete;
  MpiEndpoint& operator=(const MpiEndpoint&) = delete;

  ~MpiEndpoint() override { leak_in_flight(); }

  /// See endpoint_over(). Before all other calls.
  void watch(std::map<int, Fd> liveness) { liveness_ = std::move(liveness); }

 protected:
  void begin(Transfer& transfer) override {
    const auto bytes = bytes_of(transfer);
    const bool sends = transfer.kind == Transfer::Kind::kSend;
    if (broken_ || (sends && lost_.contains(transfer.peer)))
      return reject(transfer, unreachable(transfer.peer));
    if (!sends) return begin_receive(transfer);
    if (bytes.size() > mpi_.longest)
      return reject(transfer,
                    {Code::kInvalidArgument, text("a message of ", bytes.size(), " bytes is longer than the ",
                                                  mpi_.longest, " bytes that this MPI can send")});
    if (pending_sends_.contains(transfer.peer) || !send(transfer))
      pending_sends_[transfer.peer].push_back(&transfer);
  }

  void poll() override {
    if (broken_) return pending_sends_.clear();
    check_liveness();
    start_pending_sends();
    if (!posted_.empty() && (requests_.empty() || turn_++ % WaitPolicy::kPollsPerProbe == 0))
      probe_arrivals();
    if (!requests_.empty()) test_in_flight();
  }

  bool progress_transfer(Transfer& transfer) override { return state_of(transfer) == kEnded; }

  bool try_cancel(Transfer& transfer) override {
    if (transfer.kind == Transfer::Kind::kSend) {
      const auto unsent = pending_sends_.find(transfer.peer);
      return unsent != pending_sends_.end() && std::erase(unsent->second, &transfer) > 0;
    }
    const auto found = posted_.find({transfer.peer, transfer.tag});
    if (found == posted_.end()) return false;
    if (std::erase(found->second, &transfer) == 0) return false;  // its message is arriving
    if (found->second.empty()) posted_.erase(found);
    return true;
  }

  void finish(Deadline deadline) override {
    if (!in_flight_.empty() || !pending_sends_.empty() || broken_ || !lost_.empty()) return;
    if (barrier(deadline) && finalizes_) finalize();
  }

 private:
  static constexpr uint64_t kEnded = 1;  ///< state of a transfer that MPI has let go of

  static constexpr Tag kBarrierTag = kTags;  ///< every MPI that we know has more tags than it must

  using MatchKey = std::pair<int, Tag>;  ///< the peer and the tag by which a message and its receive match

  /// A transfer that MPI has.
  struct InFlight {
    int peer;
    Transfer* transfer;  ///< null for messages of barrier()
    uint64_t length;
    std::unique_ptr<std::byte[]> discarded;  ///< where a message goes that is too long; else null
  };

  /// Gives up a transfer that MPI has, and keeps its memory: MPI, or a network card, may still touch the bytes. To wait
  /// until MPI has completed or cancelled it might take for ever.
  void leak_in_flight(size_t index) {
    static auto* const kept = new std::vector<std::pair<InFlight, std::shared_ptr<const void>>>;
    InFlight& flight = in_flight_[index];
    auto owner = flight.transfer != nullptr ? owner_of(*flight.transfer) : nullptr;
    kept->emplace_back(std::move(flight), std::move(owner));
    remove(index);
  }

  void leak_in_flight() {
    while (!in_flight_.empty()) leak_in_flight(in_flight_.size() - 1);
  }

  void remove(size_t index) {
    if (index + 1 < in_flight_.size()) in_flight_[index] = std::move(in_flight_.back());
    in_flight_.pop_back();
    requests_[index] = requests_.back();
    requests_.pop_back();
  }

  /// Fails the transfers with peers whose liveness connection has ended, at the second check: what such a peer has sent
  /// may come a little later, over MPI.
  void check_liveness() {
    if (liveness_.empty()) return;
    const auto now = Clock::now();
    if (now < next_liveness_check_) return;
    next_liveness_check_ = now + kLivenessInterval;
    for (auto& [peer, connection] : liveness_) {
      pollfd entry{connection.get(), POLLRDHUP, 0};
      if (!connection.valid() || ::poll(&entry, 1, 0) <= 0) continue;
      if (ended_.insert(peer).second) continue;
      connection = Fd();
      fail_transfers_of(peer);
    }
  }

  void fail_transfers_of(int peer) {
    lost_.insert(peer);
    const Status why(Code::kPeerLost, text("its process has ended, or machine ", peer, " cannot be reached"));
    for (size_t index = in_flight_.size(); index-- > 0;) {
      if (in_flight_[index].peer != peer) continue;
      Transfer* const transfer = in_flight_[index].transfer;
      leak_in_flight(index);
      if (transfer != nullptr) reject(*transfer, why);
    }
    std::erase_if(posted_, [&](const auto& each) {
      if (each.first.first != peer) return false;
      for (Transfer* transfer : each.second) reject(*transfer, why);
      return true;
    });
  }

  /// False if nothing can leave for this peer now.
  bool send(Transfer& transfer) {
    const auto bytes = bytes_of(transfer);
    TntMpiRequest request{};
    const auto tag = static_cast<int32_t>(transfer.tag);
    const auto call = transfer.tag < kFirstPrepostedTag ? mpi_.isend : mpi_.isend_preposted;
    const int error =
        call_mpi([&] { return call(bytes.data(), bytes.size(), transfer.peer, tag, &request); });
    if (error > 0 && mpi_.is_busy(error)) return false;
    if (error != 0) return fail(transfer, error), true;
    requests_.push_back(request);
    in_flight_.push_back({transfer.peer, &transfer, bytes.size(), nullptr});
    return true;
  }

  void start_pending_sends() {
    for (auto& [peer, transfers] : pending_sends_) {
      while (!broken_ && !transfers.empty()) {
        Transfer& next = *transfers.front();
        if (lost_.contains(peer)) {
          reject(next, unreachable(peer));
        } else if (!send(next)) {
          break;
        }
        transfers.pop_front();
      }
    }
    std::erase_if(pending_sends_, [](const auto& each) { return each.second.empty(); });
  }

  static Status unreachable(int peer) {
    return {Code::kPeerLost, text("machine ", peer, " cannot be reached any more")};
  }

  void probe_arrivals() {
    while (!broken_) {
      TntMpiArrival arrival{};
      if (const int error = call_mpi([&] { return mpi_.improbe(&arrival); }); error != 0)
        return fail_all(error);
      if (!arrival.found) return;
      match(arrival);
    }
  }

  void test_in_flight() {
    ends_.resize(requests_.size());
    int32_t ended = 0;
    const auto count = static_cast<int32_t>(requests_.size());
    if (const int error = call_mpi([&] { return mpi_.test(count, requests_.data(), ends_.data(), &ended); });
        error != 0)
      return fail_all(error);
    const std::span all(ends_.data(), static_cast<size_t>(ended));
    // from the last to the first, so that what takes a place is never one of these
    std::sort(all.begin(), all.end(),
              [](const TntMpiEnd& a, const TntMpiEnd& b) { return a.index > b.index; });
    for (const TntMpiEnd& each : all) complete(each);
  }

  void begin_receive(Transfer& transfer) {
    if (transfer.tag >= kFirstPrepostedTag && !lost_.contains(transfer.peer)) return prepost(transfer);
    const MatchKey key{transfer.peer, transfer.tag};
    const auto unexpected = unexpected_.find(key);
    if (unexpected == unexpected_.end()) {
      posted_[key].push_back(&transfer);
      return;
    }
    const TntMpiArrival arrival = unexpected->second.front();
    unexpected->second.pop_front();
    if (unexpected->second.empty()) unexpected_.erase(unexpected);
    receive_matched(transfer, arrival);
  }

  void prepost(Transfer& transfer) {
    const auto bytes = bytes_of(transfer);
    TntMpiRequest request{};
    const auto tag = static_cast<int32_t>(transfer.tag);
    if (const int error = call_mpi(
            [&] { return mpi_.irecv_preposted(bytes.data(), bytes.size(), transfer.peer, tag, &request); });
        error != 0)
      return fail(transfer, error);
    requests_.push_back(request);
    in_flight_.push_back({transfer.peer, &transfer, 0, nullptr});
  }

  void match(const TntMpiArrival& arrival) {
    const MatchKey key{arrival.from, static_cast<Tag>(arrival.tag)};
    if (key.second == kBarrierTag) return receive_barrier(arrival);
    const auto found = posted_.find(key);
    if (found == posted_.end()) {
      unexpected_[key].push_back(arrival);
      return;
    }
    Transfer& transfer = *found->second.front();
    found->second.pop_front();
    if (found->second.empty()) posted_.erase(found);
    receive_matched(transfer, arrival);
  }

  void receive_matched(Transfer& transfer, TntMpiArrival arrival) {
    const auto bytes = bytes_of(transfer);
    InFlight flight{arrival.from, &transfer, arrival.length, nullptr};
    if (arrival.length > bytes.size()) flight.discarded.reset(new std::byte[arrival.length]);
    void* const place = flight.discarded != nullptr ? flight.discarded.get() : bytes.data();
    TntMpiRequest request{};
    if (const int error =
            call_mpi([&] { return mpi_.imrecv(place, arrival.length, &arrival.message, &request); });
        error != 0)
      return fail(transfer, error);
    requests_.push_back(request);
    in_flight_.push_back(std::move(flight));
  }

  void receive_barrier(TntMpiArrival arrival) {
    TntMpiRequest request{};
    if (const int error = call_mpi([&] { return mpi_.imrecv(nullptr, 0, &arrival.message, &request); });
        error != 0)
      return mark_dead(arrival.from, error);
    requests_.push_back(request);
    in_flight_.push_back({arrival.from, nullptr, 0, nullptr});
    ++barrier_arrivals_[arrival.from];
  }

  void complete(const TntMpiEnd& how) {
    const auto index = static_cast<size_t>(how.index);
    InFlight& flight = in_flight_[index];
    if (flight.transfer != nullptr && flight.transfer->kind == Transfer::Kind::kReceive)
      flight.length = how.length;
    if (flight.transfer == nullptr) {
      if (how.error != 0) mark_dead(flight.peer, how.error);
    } else {
      finish_transfer(flight, how.error);
    }
    remove(index);
  }

  void finish_transfer(const InFlight& flight, int error) {
    Transfer& transfer = *flight.transfer;
    if (error != 0) return fail(transfer, error);
    if (flight.discarded != nullptr) {
      set_result(transfer, too_long(transfer, flight.length));
    } else {
      set_result(transfer, flight.length);
    }
    state_of(transfer) = kEnded;
  }

  void reject(Transfer& transfer, Status why) {
    set_result(transfer, std::move(why));
    state_of(transfer) = kEnded;
  }

  void fail(Transfer& transfer, int error) {
    const bool sends = transfer.kind == Transfer::Kind::kSend;
    reject(transfer, {Code::kPeerLost, text("MPI cannot ", sends ? "send to" : "receive from", " machine ",
                                            transfer.peer, ": ", describe_error(mpi_, error))});
    mark_dead(transfer.peer, error);
  }

  void mark_dead(int peer, int error) {
    lost_.insert(peer);
    if (error == kAborted && !broken_) fail_all(error);
  }

  /// MPI does not work any more.
  void fail_all(int error) {
    broken_ = true;
    for (const InFlight& each : in_flight_) {
      if (each.transfer != nullptr) fail(*each.transfer, error);
    }
    for (const auto& [key, transfers] : posted_) {
      for (Transfer* each : transfers) fail(*each, error);
    }
    for (const auto& [peer, transfers] : pending_sends_) {
      for (Transfer* each : transfers) reject(*each, unreachable(peer));
    }
    leak_in_flight();
    posted_.clear();
  }

  /// Another node may not have seen in time that all have come, and MPI would wait for it for ever.
  void finalize() {
    auto done = std::make_shared<std::promise<void>>();
    const auto ended = done->get_future();
    std::thread([&mpi = mpi_, done] {
      (void)call_mpi([&mpi] { return mpi.finalize(); });
      done->set_value();
    }).detach();
    (void)ended.wait_for(kFinalize);
  }

  /// Whether all nodes have come here before `deadline`. Not MPI's own barrier: where a node has died, that of MPICH 5
  /// and Open MPI 5 ends the process.
  bool barrier(Deadline deadline) {
    for (int step = 1; step < size(); step *= 2) {
      const int to = (rank() + step) % size();
      TntMpiRequest request{};
      const auto tag = static_cast<int32_t>(kBarrierTag);
      int error = 0;
      const auto leaves = [&] {
        error = call_mpi([&] { return mpi_.isend(nullptr, 0, to, tag, &request); });
        return error <= 0 || !mpi_.is_busy(error);
      };
      if (!wait(deadline, leaves) || error != 0) return false;
      requests_.push_back(request);
      in_flight_.push_back({to, nullptr, 0, nullptr});
      int& came = barrier_arrivals_[(rank() - step + size()) % size()];
      if (!wait(deadline, [&] { return came > 0; })) return false;
      --came;
    }
    return wait(deadline, [&] { return in_flight_.empty(); });
  }

  template <typename Condition>
  bool wait(Deadline deadline, Condition holds) {
    while (true) {
      probe_arrivals();
      if (!requests_.empty()) test_in_flight();
      if (!lost_.empty() || broken_) return false;
      if (holds()) return true;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kPause);
    }
  }

  const TntMpi& mpi_;
  const bool finalizes_;
  std::map<int, Fd> liveness_;  ///< by peer
  std::set<int> ended_;         ///< peers whose connection has ended
  Clock::time_point next_liveness_check_{};
  std::vector<TntMpiRequest> requests_;
  std::vector<InFlight> in_flight_;  ///< of requests_
  std::vector<TntMpiEnd> ends_;
  std::map<MatchKey, std::deque<Transfer*>> posted_;  ///< receives whose message has not come; none is empty
  std::map<MatchKey, std::deque<TntMpiArrival>>
      unexpected_;  ///< messages whose receive has not begun; none is empty
  std::map<int, std::deque<Transfer*>>
      pending_sends_;  ///< by peer: sends that MPI could not take yet; none is empty
  std::map<int, int>
      barrier_arrivals_;  ///< by peer: messages of barrier() that have come and are not counted yet
  std::set<int> lost_;    ///< peers that MPI could not reach; it may end the process when it is asked again
  bool broken_ = false;
  unsigned turn_ = 0;  ///< of poll()
};

}  // namespace

std::unique_ptr<Endpoint> endpoint_over(const TntMpi& mpi, int rank, int size, bool finalizes,
                                        std::map<int, Fd> liveness) {
  auto endpoint = std::make_unique<MpiEndpoint>(mpi, rank, size, finalizes);
  endpoint->watch(std::move(liveness));
  return endpoint;
}

}  // namespace tarantella::transport
