#include "transport/mpi/mpi_wire.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <future>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "transport/mpi/library.h"
#include "transport/mpi/surroundings.h"

namespace tarantella::transport {
namespace {

constexpr Duration kFinalize = 1s;
constexpr Duration kPause = 200us;

std::string described(const TntMpi& mpi, int error) {
  char text[512];
  mpi.describe(error, text, sizeof text);
  return text;
}

/// Receives are matched here, and MPI gets one when its message is there and its length known: what MPI does with a
/// message that is too long, or a receive that is cancelled, differs from one to another, and some end the process.
class MpiWire final : public Wire {
 public:
  MpiWire(const TntMpi& mpi, int rank, int size) : Wire(rank, size), mpi_(mpi) {}
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;

  ~MpiWire() override {
    if (!flights_.empty()) keep_for_ever();
  }

 protected:
  void begin(Transfer& transfer) override {
    const auto bytes = bytes_of(transfer);
    if (transfer.kind == Transfer::Kind::kReceive) return begin_receive(transfer);
    if (bytes.size() > mpi_.longest) {
      end(transfer, {Code::kInvalidArgument, text("a message of ", bytes.size(), " bytes is longer than the ",
                                                  mpi_.longest, " bytes that this MPI can send")});
      state_of(transfer) = kEnded;
      return;
    }
    TntMpiRequest request{};
    const auto tag = static_cast<int32_t>(transfer.tag);
    const int error = mpi_.send(bytes.data(), bytes.size(), transfer.peer, tag, &request);
    if (error != 0) return fail(transfer, error);
    requests_.push_back(request);
    flights_.push_back({&transfer, bytes.size(), nullptr});
  }

  void pump() override {
    while (!waiting_.empty()) {
      TntMpiArrival arrival{};
      if (const int error = mpi_.probe(&arrival); error != 0) return fail_all(error);
      if (!arrival.found) break;
      match(arrival);
    }
    if (requests_.empty()) return;
    ends_.resize(requests_.size());
    int32_t ended = 0;
    if (const int error =
            mpi_.test(static_cast<int32_t>(requests_.size()), requests_.data(), ends_.data(), &ended);
        error != 0)
      return fail_all(error);
    const std::span all(ends_.data(), static_cast<size_t>(ended));
    // from the last to the first, so that what takes a place is never one of these
    std::sort(all.begin(), all.end(),
              [](const TntMpiEnd& a, const TntMpiEnd& b) { return a.index > b.index; });
    for (const TntMpiEnd& each : all) land(each);
  }

  bool advance(Transfer& transfer) override { return state_of(transfer) == kEnded; }

  bool give_up(Transfer& transfer) override {
    const auto found = waiting_.find({transfer.peer, transfer.tag});
    if (transfer.kind == Transfer::Kind::kSend || found == waiting_.end()) return false;
    if (std::erase(found->second, &transfer) == 0) return false;  // its message is arriving
    if (found->second.empty()) waiting_.erase(found);
    return true;
  }

  void finish(Deadline deadline) override {
    if (!flights_.empty() || broken_) return;
    if (passed(deadline) && passed(deadline)) finalize();  // who gave up on the first never enters the second
  }

 private:
  static constexpr uint64_t kEnded = 1;  ///< state of a transfer that MPI has let go of

  using Channel = std::pair<int, Tag>;  ///< peer and tag

  /// A transfer that MPI has.
  struct Flight {
    Transfer* transfer;
    uint64_t length;
    std::unique_ptr<std::byte[]> aside;  ///< where a message goes that is too long; else null
  };

  /// MPI, or a network card, may still touch the bytes of flights.
  void keep_for_ever() {
    static auto* const kept = new std::vector<std::pair<Flight, std::shared_ptr<const void>>>;
    for (Flight& each : flights_) {
      auto owner = owner_of(*each.transfer);
      kept->emplace_back(std::move(each), std::move(owner));
    }
  }

  void begin_receive(Transfer& transfer) {
    const Channel channel{transfer.peer, transfer.tag};
    const auto early = early_.find(channel);
    if (early == early_.end()) {
      waiting_[channel].push_back(&transfer);
      return;
    }
    const TntMpiArrival arrival = early->second.front();
    early->second.pop_front();
    if (early->second.empty()) early_.erase(early);
    take(transfer, arrival);
  }

  void match(const TntMpiArrival& arrival) {
    const Channel channel{arrival.from, static_cast<Tag>(arrival.tag)};
    const auto found = waiting_.find(channel);
    if (found == waiting_.end()) {
      early_[channel].push_back(arrival);
      return;
    }
    Transfer& transfer = *found->second.front();
    found->second.pop_front();
    if (found->second.empty()) waiting_.erase(found);
    take(transfer, arrival);
  }

  void take(Transfer& transfer, TntMpiArrival arrival) {
    const auto bytes = bytes_of(transfer);
    Flight flight{&transfer, arrival.length, nullptr};
    if (arrival.length > bytes.size()) flight.aside.reset(new std::byte[arrival.length]);
    void* const place = flight.aside != nullptr ? flight.aside.get() : bytes.data();
    TntMpiRequest request{};
    if (const int error = mpi_.receive(place, arrival.length, &arrival.message, &request); error != 0)
      return fail(transfer, error);
    requests_.push_back(request);
    flights_.push_back(std::move(flight));
  }

  void land(const TntMpiEnd& how) {
    const auto index = static_cast<size_t>(how.index);
    Flight& flight = flights_[index];
    if (how.error != 0) {
      fail(*flight.transfer, how.error);
    } else if (flight.aside != nullptr) {
      end(*flight.transfer, too_long(*flight.transfer, flight.length));
    } else {
      end(*flight.transfer, flight.length);
    }
    state_of(*flight.transfer) = kEnded;
    std::swap(flight, flights_.back());
    flights_.pop_back();
    requests_[index] = requests_.back();
    requests_.pop_back();
  }

  void fail(Transfer& transfer, int error) {
    const bool sends = transfer.kind == Transfer::Kind::kSend;
    end(transfer, {Code::kPeerLost, text("MPI cannot ", sends ? "send to" : "receive from", " rank ",
                                         transfer.peer, ": ", described(mpi_, error))});
    state_of(transfer) = kEnded;
  }

  /// MPI does not work any more.
  void fail_all(int error) {
    for (const Flight& each : flights_) fail(*each.transfer, error);
    for (const auto& [channel, transfers] : waiting_) {
      for (Transfer* each : transfers) fail(*each, error);
    }
    broken_ = true;
    requests_.clear();
    flights_.clear();
    waiting_.clear();
  }

  /// Another node may not have seen in time that all have come, and MPI would wait for it for ever.
  void finalize() {
    auto done = std::make_shared<std::promise<void>>();
    const auto ended = done->get_future();
    std::thread([&mpi = mpi_, done] {
      (void)mpi.finalize();
      done->set_value();
    }).detach();
    (void)ended.wait_for(kFinalize);
  }

  /// Whether all nodes have come here before `deadline`.
  bool passed(Deadline deadline) {
    TntMpiRequest request{};
    if (mpi_.barrier(&request) != 0) return false;
    while (true) {
      TntMpiEnd how{};
      int32_t ended = 0;
      if (mpi_.test(1, &request, &how, &ended) != 0) return false;
      if (ended != 0) return how.error == 0;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kPause);
    }
  }

  const TntMpi& mpi_;
  std::vector<TntMpiRequest> requests_;
  std::vector<Flight> flights_;  ///< of requests_
  std::vector<TntMpiEnd> ends_;
  std::map<Channel, std::deque<Transfer*>> waiting_;  ///< receives whose message has not come; none is empty
  std::map<Channel, std::deque<TntMpiArrival>>
      early_;  ///< messages whose receive has not begun; none is empty
  bool broken_ = false;
};

/// A variable of the environment while MPI starts, unless the user has set it.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(getenv(name) == nullptr ? name : nullptr) {
    if (name_ != nullptr) (void)setenv(name_, value, 0);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() {
    if (name_ != nullptr) (void)unsetenv(name_);
  }

 private:
  const char* const name_;
};

int start(const TntMpi& mpi, TntMpiJob* job) {
  // One process a host calls MPI, so it has no use for shared memory; test hosts are on one machine.
  const Setting no_local("MPIR_CVAR_NOLOCAL", "1");
  // Its fabric for one-sided calls, which nobody makes, waits for a second.
  const Setting no_fabric("OMPI_MCA_btl", "^ofi");
  const SignalHandlers handlers;
  const int error = mpi.start(job);
  handlers.restore();
  return error;
}

Status check(const TntMpiJob& job, const std::string& transport, int node, int nodes) {
  if (job.at_end) return {Code::kSystem, "MPI has been finalized in this process, and cannot start again"};
  if (!job.threads)
    return {Code::kSystem, text(transport,
                                " lets only one thread call it; initialize MPI with MPI_THREAD_SERIALIZED "
                                "or more, or leave that to Tarantella")};
  if (job.size != nodes)
    return {Code::kMismatch, text("MPI has started ", job.size, job.size == 1 ? " process" : " processes",
                                  ", not ", nodes, ": the MPI of mpiexec or srun differs from ", transport,
                                  "; set TNT_TRANSPORT, or load the module of the MPI that started the job")};
  if (job.rank != node)
    return {Code::kMismatch, text("node ", node, " is rank ", job.rank, " of MPI; start the job with ",
                                  "`tarantella`, or number the nodes as MPI does")};
  return {};
}

}  // namespace

Result<std::unique_ptr<Wire>> make_mpi_wire(const std::string& transport, int node, int nodes) {
  const auto mpi = load_mpi(transport);
  if (!mpi.ok()) return mpi.status();
  const auto before = shared_memory_files();
  TntMpiJob job{};
  if (const int error = start(*mpi.value(), &job); error != 0)
    return Status(Code::kSystem, text("cannot start ", transport, ": ", described(*mpi.value(), error)));
  if (job.alone) {
    for (const std::string& each : shared_memory_files()) {
      if (!before.contains(each)) (void)unlink(each.c_str());
    }
  }
  TNT_RETURN_IF_ERROR(check(job, transport, node, nodes));
  return std::unique_ptr<Wire>(std::make_unique<MpiWire>(*mpi.value(), node, nodes));
}

}  // namespace tarantella::transport
