#include "transport/mpi/mpi_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/network.h"
#include "transport/mpi/abort.h"
#include "transport/mpi/library.h"
#include "transport/mpi/process_manager.h"
#include "transport/mpi/settings.h"
#include "transport/mpi/surroundings.h"

namespace tarantella::transport {
namespace {

constexpr Duration kFinalize = 1s;
constexpr Duration kPause = 200us;
constexpr Duration kLookAtLifelines = 500ms;
constexpr Duration kLookAtSignals = 20ms;

std::string described(const TntMpi& mpi, int error) {
  if (error == kAborted) return "it has stopped, as it does when any machine is gone";
  char text[512];
  mpi.describe(error, text, sizeof text);
  const std::string_view all = text;
  return std::string(all.substr(0, all.find(", error stack")));  // ten lines of MPICH's own functions
}

/// MPI gets a receive at once if its message is foreseen. All others are matched here, and MPI gets one when its
/// message is there and its length known: what MPI does with a message that is too long, or a receive that is
/// cancelled, differs from one to another, and some end the process.
class MpiWire final : public Wire {
 public:
  MpiWire(const TntMpi& mpi, int rank, int size, bool finalizes)
      : Wire(rank, size), mpi_(mpi), finalizes_(finalizes) {}
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;

  ~MpiWire() override { keep_for_ever(); }

  /// By rank, connections that end with the peer. Before all other calls.
  void watch(std::map<int, Fd> lifelines) { lifelines_ = std::move(lifelines); }

 protected:
  void begin(Transfer& transfer) override {
    const auto bytes = bytes_of(transfer);
    const bool sends = transfer.kind == Transfer::Kind::kSend;
    if (broken_ || (sends && lost_.contains(transfer.peer)))
      return refuse(transfer, unreachable(transfer.peer));
    if (!sends) return begin_receive(transfer);
    if (bytes.size() > mpi_.longest)
      return refuse(transfer,
                    {Code::kInvalidArgument, text("a message of ", bytes.size(), " bytes is longer than the ",
                                                  mpi_.longest, " bytes that this MPI can send")});
    if (unsent_.contains(transfer.peer) || !send(transfer)) unsent_[transfer.peer].push_back(&transfer);
  }

  void pump() override {
    if (broken_) return unsent_.clear();
    look_at_lifelines();
    send_unsent();
    if (!waiting_.empty() && (requests_.empty() || turn_++ % kProbeEvery == 0)) take_arrivals();
    if (!requests_.empty()) test_flights();
  }

  bool advance(Transfer& transfer) override { return state_of(transfer) == kEnded; }

  bool give_up(Transfer& transfer) override {
    if (transfer.kind == Transfer::Kind::kSend) {
      const auto unsent = unsent_.find(transfer.peer);
      return unsent != unsent_.end() && std::erase(unsent->second, &transfer) > 0;
    }
    const auto found = waiting_.find({transfer.peer, transfer.tag});
    if (found == waiting_.end()) return false;
    if (std::erase(found->second, &transfer) == 0) return false;  // its message is arriving
    if (found->second.empty()) waiting_.erase(found);
    return true;
  }

  void finish(Deadline deadline) override {
    if (!flights_.empty() || !unsent_.empty() || broken_ || !lost_.empty()) return;
    if (meet(deadline) && finalizes_) finalize();
  }

 private:
  /// A look for messages takes MPI as long as a short message does, so those that are foreseen come first.
  static constexpr unsigned kProbeEvery = 8;
  static constexpr uint64_t kEnded = 1;  ///< state of a transfer that MPI has let go of

  static constexpr Tag kMeeting = kTags;  ///< every MPI that we know has more tags than it must

  using Channel = std::pair<int, Tag>;  ///< peer and tag

  /// A transfer that MPI has.
  struct Flight {
    int peer;
    Transfer* transfer;  ///< null for messages of meet()
    uint64_t length;
    std::unique_ptr<std::byte[]> aside;  ///< where a message goes that is too long; else null
  };

  /// Parts from a flight: MPI, or a network card, may still touch its bytes. To wait until MPI has completed or
  /// cancelled it might take for ever.
  void keep_for_ever(size_t index) {
    static auto* const kept = new std::vector<std::pair<Flight, std::shared_ptr<const void>>>;
    Flight& flight = flights_[index];
    auto owner = flight.transfer != nullptr ? owner_of(*flight.transfer) : nullptr;
    kept->emplace_back(std::move(flight), std::move(owner));
    remove(index);
  }

  void keep_for_ever() {
    while (!flights_.empty()) keep_for_ever(flights_.size() - 1);
  }

  void remove(size_t index) {
    if (index + 1 < flights_.size()) flights_[index] = std::move(flights_.back());
    flights_.pop_back();
    requests_[index] = requests_.back();
    requests_.pop_back();
  }

  /// What a peer has said before its end may come a little later, over MPI.
  void look_at_lifelines() {
    if (lifelines_.empty()) return;
    const auto now = Clock::now();
    if (now < look_again_) return;
    look_again_ = now + kLookAtLifelines;
    for (auto& [peer, lifeline] : lifelines_) {
      pollfd entry{lifeline.get(), POLLRDHUP, 0};
      if (!lifeline.valid() || ::poll(&entry, 1, 0) <= 0) continue;
      if (ended_.insert(peer).second) continue;
      lifeline = Fd();
      cut(peer);
    }
  }

  void cut(int peer) {
    lost_.insert(peer);
    const Status why(Code::kPeerLost, text("its process has ended, or machine ", peer, " cannot be reached"));
    for (size_t index = flights_.size(); index-- > 0;) {
      if (flights_[index].peer != peer) continue;
      Transfer* const transfer = flights_[index].transfer;
      keep_for_ever(index);
      if (transfer != nullptr) refuse(*transfer, why);
    }
    std::erase_if(waiting_, [&](const auto& each) {
      if (each.first.first != peer) return false;
      for (Transfer* transfer : each.second) refuse(*transfer, why);
      return true;
    });
  }

  /// False if nothing can leave for this peer now.
  bool send(Transfer& transfer) {
    const auto bytes = bytes_of(transfer);
    TntMpiRequest request{};
    const auto tag = static_cast<int32_t>(transfer.tag);
    const auto call = transfer.tag < kForeseen ? mpi_.send : mpi_.send_foreseen;
    const int error = guarded([&] { return call(bytes.data(), bytes.size(), transfer.peer, tag, &request); });
    if (error > 0 && mpi_.is_busy(error)) return false;
    if (error != 0) return fail(transfer, error), true;
    requests_.push_back(request);
    flights_.push_back({transfer.peer, &transfer, bytes.size(), nullptr});
    return true;
  }

  void send_unsent() {
    for (auto& [peer, transfers] : unsent_) {
      while (!broken_ && !transfers.empty()) {
        Transfer& next = *transfers.front();
        if (lost_.contains(peer)) {
          refuse(next, unreachable(peer));
        } else if (!send(next)) {
          break;
        }
        transfers.pop_front();
      }
    }
    std::erase_if(unsent_, [](const auto& each) { return each.second.empty(); });
  }

  static Status unreachable(int peer) {
    return {Code::kPeerLost, text("machine ", peer, " cannot be reached any more")};
  }

  void take_arrivals() {
    while (!broken_) {
      TntMpiArrival arrival{};
      if (const int error = guarded([&] { return mpi_.probe(&arrival); }); error != 0) return fail_all(error);
      if (!arrival.found) return;
      match(arrival);
    }
  }

  void test_flights() {
    ends_.resize(requests_.size());
    int32_t ended = 0;
    const auto count = static_cast<int32_t>(requests_.size());
    if (const int error = guarded([&] { return mpi_.test(count, requests_.data(), ends_.data(), &ended); });
        error != 0)
      return fail_all(error);
    const std::span all(ends_.data(), static_cast<size_t>(ended));
    // from the last to the first, so that what takes a place is never one of these
    std::sort(all.begin(), all.end(),
              [](const TntMpiEnd& a, const TntMpiEnd& b) { return a.index > b.index; });
    for (const TntMpiEnd& each : all) land(each);
  }

  void begin_receive(Transfer& transfer) {
    if (transfer.tag >= kForeseen && !lost_.contains(transfer.peer)) return foresee(transfer);
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

  void foresee(Transfer& transfer) {
    const auto bytes = bytes_of(transfer);
    TntMpiRequest request{};
    const auto tag = static_cast<int32_t>(transfer.tag);
    if (const int error =
            guarded([&] { return mpi_.foresee(bytes.data(), bytes.size(), transfer.peer, tag, &request); });
        error != 0)
      return fail(transfer, error);
    requests_.push_back(request);
    flights_.push_back({transfer.peer, &transfer, 0, nullptr});
  }

  void match(const TntMpiArrival& arrival) {
    const Channel channel{arrival.from, static_cast<Tag>(arrival.tag)};
    if (channel.second == kMeeting) return take_meeting(arrival);
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
    Flight flight{arrival.from, &transfer, arrival.length, nullptr};
    if (arrival.length > bytes.size()) flight.aside.reset(new std::byte[arrival.length]);
    void* const place = flight.aside != nullptr ? flight.aside.get() : bytes.data();
    TntMpiRequest request{};
    if (const int error =
            guarded([&] { return mpi_.receive(place, arrival.length, &arrival.message, &request); });
        error != 0)
      return fail(transfer, error);
    requests_.push_back(request);
    flights_.push_back(std::move(flight));
  }

  void take_meeting(TntMpiArrival arrival) {
    TntMpiRequest request{};
    if (const int error = guarded([&] { return mpi_.receive(nullptr, 0, &arrival.message, &request); });
        error != 0)
      return lose(arrival.from, error);
    requests_.push_back(request);
    flights_.push_back({arrival.from, nullptr, 0, nullptr});
    ++met_[arrival.from];
  }

  void land(const TntMpiEnd& how) {
    const auto index = static_cast<size_t>(how.index);
    Flight& flight = flights_[index];
    if (flight.transfer != nullptr && flight.transfer->kind == Transfer::Kind::kReceive)
      flight.length = how.length;
    if (flight.transfer == nullptr) {
      if (how.error != 0) lose(flight.peer, how.error);
    } else {
      settle(flight, how.error);
    }
    remove(index);
  }

  void settle(const Flight& flight, int error) {
    Transfer& transfer = *flight.transfer;
    if (error != 0) return fail(transfer, error);
    if (flight.aside != nullptr) {
      end(transfer, too_long(transfer, flight.length));
    } else {
      end(transfer, flight.length);
    }
    state_of(transfer) = kEnded;
  }

  void refuse(Transfer& transfer, Status why) {
    end(transfer, std::move(why));
    state_of(transfer) = kEnded;
  }

  void fail(Transfer& transfer, int error) {
    const bool sends = transfer.kind == Transfer::Kind::kSend;
    refuse(transfer, {Code::kPeerLost, text("MPI cannot ", sends ? "send to" : "receive from", " machine ",
                                            transfer.peer, ": ", described(mpi_, error))});
    lose(transfer.peer, error);
  }

  void lose(int peer, int error) {
    lost_.insert(peer);
    if (error == kAborted && !broken_) fail_all(error);
  }

  /// MPI does not work any more.
  void fail_all(int error) {
    broken_ = true;
    for (const Flight& each : flights_) {
      if (each.transfer != nullptr) fail(*each.transfer, error);
    }
    for (const auto& [channel, transfers] : waiting_) {
      for (Transfer* each : transfers) fail(*each, error);
    }
    for (const auto& [peer, transfers] : unsent_) {
      for (Transfer* each : transfers) refuse(*each, unreachable(peer));
    }
    keep_for_ever();
    waiting_.clear();
  }

  /// Another node may not have seen in time that all have come, and MPI would wait for it for ever.
  void finalize() {
    auto done = std::make_shared<std::promise<void>>();
    const auto ended = done->get_future();
    std::thread([&mpi = mpi_, done] {
      (void)guarded([&mpi] { return mpi.finalize(); });
      done->set_value();
    }).detach();
    (void)ended.wait_for(kFinalize);
  }

  /// Whether all nodes have come here before `deadline`. Not MPI's own barrier: where a node has died, that of MPICH 5
  /// and Open MPI 5 ends the process.
  bool meet(Deadline deadline) {
    for (int step = 1; step < size(); step *= 2) {
      const int to = (rank() + step) % size();
      TntMpiRequest request{};
      const auto tag = static_cast<int32_t>(kMeeting);
      int error = 0;
      const auto leaves = [&] {
        error = guarded([&] { return mpi_.send(nullptr, 0, to, tag, &request); });
        return error <= 0 || !mpi_.is_busy(error);
      };
      if (!wait(deadline, leaves) || error != 0) return false;
      requests_.push_back(request);
      flights_.push_back({to, nullptr, 0, nullptr});
      int& came = met_[(rank() - step + size()) % size()];
      if (!wait(deadline, [&] { return came > 0; })) return false;
      --came;
    }
    return wait(deadline, [&] { return flights_.empty(); });
  }

  template <typename Condition>
  bool wait(Deadline deadline, Condition holds) {
    while (true) {
      take_arrivals();
      if (!requests_.empty()) test_flights();
      if (!lost_.empty() || broken_) return false;
      if (holds()) return true;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kPause);
    }
  }

  const TntMpi& mpi_;
  const bool finalizes_;
  std::map<int, Fd> lifelines_;
  std::set<int> ended_;  ///< peers whose lifeline has ended
  Clock::time_point look_again_{};
  std::vector<TntMpiRequest> requests_;
  std::vector<Flight> flights_;  ///< of requests_
  std::vector<TntMpiEnd> ends_;
  std::map<Channel, std::deque<Transfer*>> waiting_;  ///< receives whose message has not come; none is empty
  std::map<Channel, std::deque<TntMpiArrival>>
      early_;  ///< messages whose receive has not begun; none is empty
  std::map<int, std::deque<Transfer*>>
      unsent_;              ///< by peer: sends that MPI could not take yet; none is empty
  std::map<int, int> met_;  ///< by peer: messages of meet() that have come and are not counted yet
  std::set<int> lost_;      ///< peers that MPI could not reach; it may end the process when it is asked again
  bool broken_ = false;
  unsigned turn_ = 0;  ///< of pump()
};

std::string over(const std::string& device) {
  return device.empty()
             ? ""
             : text(" over the network device ", device, " (", kDeviceVariable, " chooses another)");
}

struct Start {
  int error = 0;
  TntMpiJob job{};
};

Start start(const TntMpi& mpi, const std::string& library, const std::string& device) {
  Start started;
  const Settings settings(mpi, library, device);
  catch_aborts();
  const SignalHandlers handlers;
  started.error = guarded([&] { return mpi.start(&started.job); });
  handlers.restore();
  return started;
}

/// start() on a thread of its own: MPI waits without a limit for a node that does not come.
Result<Start> start_until(Deadline deadline, const TntMpi& mpi, const std::string& library,
                          const std::string& device, int node, Duration warn_every,
                          const HeldSignals& signals) {
  std::packaged_task<Start()> task([&mpi, library, device] { return start(mpi, library, device); });
  std::future<Start> started = task.get_future();
  const auto since = Clock::now();
  auto warn_at = since + warn_every;
  std::thread(std::move(task)).detach();
  while (started.wait_for(std::min(kLookAtSignals, deadline.left())) != std::future_status::ready) {
    if (signals.came()) return Status(Code::kSystem, "a signal has ended the start of MPI");
    if (!deadline.passed() && Clock::now() < warn_at) continue;
    warn_at += warn_every;
    const auto waited = std::chrono::round<std::chrono::seconds>(Clock::now() - since).count();
    if (deadline.passed())
      return Status(Code::kTimeout,
                    text("MPI did not start on machine ", node, " within ", waited,
                         " s: another machine did not come, or cannot be reached", over(device),
                         "; make the same calls on every rank (limit: TNT_TIMEOUT)"));
    log_warning(text("machine ", node, " has waited ", waited, " s for the other machines to start MPI"));
  }
  return started.get();
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

/// Starts MPI, and makes the wire.
Result<std::unique_ptr<MpiWire>> make(const std::string& transport, const std::string& device, int node,
                                      int nodes, bool finalizes, Deadline deadline, Duration warn_every) {
  const auto mpi = load_mpi(transport);
  if (!mpi.ok()) return mpi.status();
  if (!device.empty()) TNT_RETURN_IF_ERROR(has_device(device));
  const auto before = shared_memory_files();
  const HeldSignals signals;
  const auto started = start_until(deadline, *mpi.value(), transport.substr(transport.find(':') + 1), device,
                                   node, warn_every, signals);
  // also of a start that MPI has broken off
  if (!started.ok() || started.value().error != 0 || started.value().job.alone) {
    for (const std::string& each : shared_memory_files()) {
      if (!before.contains(each)) (void)unlink(each.c_str());
    }
  }
  if (!started.ok()) return started.status();
  const auto& [error, job] = started.value();
  if (error != 0)
    return Status(Code::kSystem,
                  text("cannot start ", transport, over(device), ": ", described(*mpi.value(), error)));
  TNT_RETURN_IF_ERROR(check(job, transport, node, nodes));
  return std::make_unique<MpiWire>(*mpi.value(), node, nodes, finalizes);
}

}  // namespace

std::unique_ptr<Wire> wire_over(const TntMpi& mpi, int rank, int size, bool finalizes,
                                std::map<int, Fd> lifelines) {
  auto wire = std::make_unique<MpiWire>(mpi, rank, size, finalizes);
  wire->watch(std::move(lifelines));
  return wire;
}

Result<std::unique_ptr<Wire>> make_mpi_wire(const std::string& transport, int node, int nodes,
                                            Deadline deadline, Duration warn_every) {
  auto wire = make(transport, device_to_use(""), node, nodes, true, deadline, warn_every);
  if (!wire.ok()) return wire.status();
  return std::unique_ptr<Wire>(std::move(wire).value());
}

Result<std::unique_ptr<Wire>> make_mpi_wire(const std::string& transport, int node, int nodes,
                                            std::vector<Fd> leaders, Deadline deadline, Duration warn_every) {
  if (transport.starts_with("openmpi"))
    return Status(
        Code::kInvalidArgument,
        "on several machines Open MPI carries data for `tarantella` only, not for ranks that another "
        "starter has started; pip install 'tarantella[mpi]' on all of them brings MPICH, or start with "
        "`tarantella`");
  const std::string device = device_to_use(device_of(leaders.at(0).get()));
  Fd own;
  Status served;
  std::optional<ProcessManager> manager;
  std::thread serving;
  if (node == 0) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return Status::system("socketpair for MPI", errno);
    own = Fd(ends[0]);
    leaders.insert(leaders.begin(), Fd(ends[1]));
    manager.emplace(std::move(leaders));
    serving = std::thread([&] {
      served = manager->serve(deadline);
      if (!served.ok()) (void)manager->take_sockets();  // the others hear of it
    });
  } else {
    own = std::move(leaders.at(0));
  }
  auto wire = [&] {
    const ProcessVariables variables(own.get(), node, nodes);
    return make(transport, device, node, nodes, false, deadline, warn_every);
  }();
  const Status started = wire.ok() ? ProcessManager::let_go(own.get(), deadline) : wire.status();
  // What goes wrong here ends the manager, and so the start of the others. MPI may use its socket until it has ended.
  if (!wire.ok()) (void)::shutdown(own.get(), SHUT_RDWR);
  std::map<int, Fd> lifelines;
  if (node > 0) lifelines.emplace(0, Fd(::fcntl(own.get(), F_DUPFD_CLOEXEC, 0)));
  static auto* const kept = new std::vector<Fd>;
  kept->push_back(std::move(own));
  if (serving.joinable()) serving.join();
  if (wire.ok() && !served.ok()) return served;  // it names the machine
  if (!started.ok()) return started;
  if (manager) {
    std::vector<Fd> sockets = manager->take_sockets();
    for (size_t k = 1; k < sockets.size(); ++k) lifelines.emplace(static_cast<int>(k), std::move(sockets[k]));
  }
  wire.value()->watch(std::move(lifelines));
  return std::unique_ptr<Wire>(std::move(wire).value());
}

}  // namespace tarantella::transport
