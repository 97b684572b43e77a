#include "transport/mpi/mpi_endpoint.h"

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
#include "base/wait_policy.h"
#include "transport/mpi/abort_guard.h"
#include "transport/mpi/library.h"
#include "transport/mpi/mpi_settings.h"
#include "transport/mpi/pmi_server.h"
#include "transport/mpi/scoped_environment.h"
#include "transport/mpi/signals_and_shm.h"

namespace tarantella::transport {
namespace {

constexpr Duration kFinalize = 1s;
constexpr Duration kPause = 200us;
constexpr Duration kLivenessInterval = 500ms;
constexpr Duration kSignalInterval = 20ms;

std::string described(const TntMpi& mpi, int error) {
  if (error == kAborted) return "it has stopped, as it does when any machine is gone";
  char text[512];
  mpi.describe(error, text, sizeof text);
  const std::string_view all = text;
  return std::string(all.substr(0, all.find(", error stack")));  // ten lines of MPICH's own functions
}

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
                                            transfer.peer, ": ", described(mpi_, error))});
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

std::string over(const std::string& device) {
  return device.empty()
             ? ""
             : text(" over the network device ", device, " (", kDeviceVariable, " chooses another)");
}

struct Start {
  int error = 0;
  TntMpiJob job{};
};

Start start(const TntMpi& mpi) {
  Start started;
  catch_aborts();
  const SignalHandlers handlers;
  started.error = call_mpi([&] { return mpi.start(&started.job); });
  handlers.restore();
  return started;
}

/// start() on a thread of its own: MPI waits without a limit for a node that does not come.
Result<Start> start_until(Deadline deadline, const TntMpi& mpi, const std::string& device, int node,
                          Duration warn_every, const HeldSignals& signals) {
  std::packaged_task<Start()> task([&mpi] { return start(mpi); });
  std::future<Start> started = task.get_future();
  const auto since = Clock::now();
  auto warn_at = since + warn_every;
  std::thread(std::move(task)).detach();
  while (started.wait_for(std::min(kSignalInterval, deadline.left())) != std::future_status::ready) {
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

Status check(const TntMpiJob& job, const std::string& mpi_library, int node, int nodes) {
  if (job.at_end) return {Code::kSystem, "MPI has been finalized in this process, and cannot start again"};
  if (!job.threads)
    return {Code::kSystem, text(mpi_library,
                                " lets only one thread call it; initialize MPI with MPI_THREAD_SERIALIZED "
                                "or more, or leave that to Tarantella")};
  if (job.size != nodes)
    return {Code::kMismatch, text("MPI has started ", job.size, job.size == 1 ? " process" : " processes",
                                  ", not ", nodes, ": the MPI of mpiexec or srun differs from ", mpi_library,
                                  "; set TNT_TRANSPORT, or load the module of the MPI that started the job")};
  if (job.rank != node)
    return {Code::kMismatch, text("node ", node, " is rank ", job.rank, " of MPI; start the job with ",
                                  "`tarantella`, or number the nodes as MPI does")};
  return {};
}

/// Starts MPI, which finds `variables` in the environment, and makes the endpoint.
Result<std::unique_ptr<MpiEndpoint>> make(const std::string& mpi_library, Variables variables,
                                          const std::string& device, int node, int nodes, bool finalizes,
                                          Deadline deadline, Duration warn_every) {
  const auto mpi = load_mpi(mpi_library);
  if (!mpi.ok()) return mpi.status();
  if (!device.empty()) TNT_RETURN_IF_ERROR(has_device(device));
  const auto before = shared_memory_files();
  const HeldSignals signals;
  variables.merge(settings_for(*mpi.value(), mpi_library.substr(mpi_library.find(':') + 1), device));
  const auto started = [&] {
    const ScopedEnvironment environment(variables);
    return start_until(deadline, *mpi.value(), device, node, warn_every, signals);
  }();
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
                  text("cannot start ", mpi_library, over(device), ": ", described(*mpi.value(), error)));
  TNT_RETURN_IF_ERROR(check(job, mpi_library, node, nodes));
  return std::make_unique<MpiEndpoint>(*mpi.value(), node, nodes, finalizes);
}

}  // namespace

std::unique_ptr<Endpoint> endpoint_over(const TntMpi& mpi, int rank, int size, bool finalizes,
                                        std::map<int, Fd> liveness) {
  auto endpoint = std::make_unique<MpiEndpoint>(mpi, rank, size, finalizes);
  endpoint->watch(std::move(liveness));
  return endpoint;
}

Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    Deadline deadline, Duration warn_every) {
  auto endpoint = make(mpi_library, {}, device_to_use(""), node, nodes, true, deadline, warn_every);
  if (!endpoint.ok()) return endpoint.status();
  return std::unique_ptr<Endpoint>(std::move(endpoint).value());
}

Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    std::vector<Fd> leader_sockets, Deadline deadline,
                                                    Duration warn_every) {
  if (mpi_library.starts_with("openmpi"))
    return Status(
        Code::kInvalidArgument,
        "on several machines Open MPI carries data for `tarantella` only, not for ranks that another "
        "starter has started; pip install 'tarantella[mpi]' on all of them brings MPICH, or start with "
        "`tarantella`");
  const std::string device = device_to_use(device_of(leader_sockets.at(0).get()));
  Fd own;
  Status served;
  std::optional<PmiServer> manager;
  std::thread serving;
  if (node == 0) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return Status::system("socketpair for MPI", errno);
    own = Fd(ends[0]);
    leader_sockets.insert(leader_sockets.begin(), Fd(ends[1]));
    manager.emplace(std::move(leader_sockets));
    serving = std::thread([&] {
      served = manager->serve(deadline);
      if (!served.ok()) (void)manager->take_sockets();  // the others hear of it
    });
  } else {
    own = std::move(leader_sockets.at(0));
  }
  auto endpoint = make(mpi_library, process_variables(own.get(), node, nodes), device, node, nodes, false,
                       deadline, warn_every);
  const Status started = endpoint.ok() ? PmiServer::finalize_pmi(own.get(), deadline) : endpoint.status();
  // After an error the connection is shut down: that ends the process manager, and so the start on the other nodes. It
  // is not closed, since MPI may use its descriptor until the process ends.
  if (!endpoint.ok()) (void)::shutdown(own.get(), SHUT_RDWR);
  std::map<int, Fd> liveness;
  if (node > 0) liveness.emplace(0, Fd(::fcntl(own.get(), F_DUPFD_CLOEXEC, 0)));
  static auto* const kept = new std::vector<Fd>;
  kept->push_back(std::move(own));
  if (serving.joinable()) serving.join();
  if (endpoint.ok() && !served.ok()) return served;  // it names the machine
  if (!started.ok()) return started;
  if (manager) {
    std::vector<Fd> sockets = manager->take_sockets();
    for (size_t k = 1; k < sockets.size(); ++k) liveness.emplace(static_cast<int>(k), std::move(sockets[k]));
  }
  endpoint.value()->watch(std::move(liveness));
  return std::unique_ptr<Endpoint>(std::move(endpoint).value());
}

}  // namespace tarantella::transport
