#pragma once
// What the launcher of a job on several hosts (the coordinator) and the launcher on each host (an agent) send each
// other, through one TCP connection for each host, which the agent opens.
//
// A frame is eight bytes, kind and size as little-endian 32-bit integers, and `size` bytes of content.
//
//   agent        kHello       who it is, once both have proved that they know the secret
//                             (runtime/authenticated_listener.h)
//   coordinator  kJob         what to run, encrypted with the secret: it may hold the user's tokens (encryption.h)
//   agent        kReady       it could start its ranks now; with warnings for the user
//                kRefused     it could not, and why; the connection ends
//   coordinator  kStart       start the ranks; sent when all hosts are ready
//   agent        kOutput, kError: output of ranks, for the user's stdout and stderr
//   coordinator  kSignal      pass it on to the ranks, as if the agent had got it
//   coordinator  kEnd         end the ranks: the job has failed on another host
//   agent        kHeartbeat   once in a while: this host runs
//   both         kRankStatus  which ranks have joined or ended: of the host (till all have joined), or of all
//   agent        kProgress    a snapshot or an epoch was completed
//   agent        kResult      all ranks have ended
//
// With --timeline the agent also sends
//   before kReady  kTimeQuery   asks for the coordinator's time, several times; the answers are kTimeReply
//   after kResult  kTimeQuery   again
//                  kClock       how its clock differs
//                  kRecords     of its ranks, in pieces
//                  kRecordsEnd  that was all, or why there is nothing
//
// With --max-restarts there are also
//   coordinator  after kJob      kSnapshotEnd, for host 0 after kSnapshot: what rank 0 goes on from, in pieces
//   agent        before kResult  kSnapshotNumber: its newest snapshot, if there is one
//   coordinator  after kResult   kSnapshotQuery: send it
//   agent                        kSnapshot, in pieces, and kSnapshotEnd

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/options.h"
#include "launch/cluster/environment_changes.h"
#include "launch/ending/job_result.h"
#include "launch/hosts/host_assignments.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"
#include "launch/system/signals.h"
#include "timeline/clocks.h"

namespace tarantella::launch {

struct Message {
  enum class Kind : int {
    kHello,
    kJob,
    kReady,
    kRefused,
    kStart,
    kOutput,
    kError,
    kSignal,
    kEnd,
    kRankStatus,
    kResult,
    kTimeQuery,
    kTimeReply,
    kClock,
    kRecords,
    kRecordsEnd,
    kHeartbeat,
    kProgress,
    kSnapshotNumber,
    kSnapshotQuery,
    kSnapshot,
    kSnapshotEnd
  };
  Kind kind = Kind::kHello;
  std::string content;
};

/// The message as bytes.
std::string frame(Message::Kind kind, std::string_view content);

/// Assembles messages from bytes. Ignores everything from the first malformed frame on. Pure.
class MessageReader {
 public:
  static constexpr size_t kLongest = 16 << 20;  ///< of a content; an environment may have 2 MiB

  std::vector<Message> add(std::string_view data);
  bool broken() const { return broken_; }

 private:
  bool broken_ = false;
  std::string pending_;
};

/// The first message of an agent.
struct Hello {
  std::string version;
  std::string host;
  int index = -1;
  std::vector<std::string> variable_macs = {};  ///< see variable_macs_of(); not read from another version
};

/// The whole job, as the coordinator sends it to each agent. The agent makes a HostJobPlan of it, and of that the
/// LocalJobSpec of its host.
struct JobSpec {
  std::string job_id;
  std::string mpi_library;  ///< ABI and path of MPI's library: TNT_TRANSPORT of the ranks
  std::string folder;       ///< the working folder
  Command command;          ///< runs the script
  bool heeds_user_signals = false;
  bool explicit_count = false;              ///< the user has given the number of ranks
  bool keeps_snapshots = false;             ///< for the next attempt of the job
  std::vector<HostAssignment> assignments;  ///< of all hosts
  Options options;                          ///< as the coordinator has them, without `command_line`
  EnvironmentChanges environment = {};

  int ranks() const { return assignments.back().first_rank + assignments.back().ranks; }
};

/// The answer to the time query of this number.
struct Time {
  int query = 0;
  int64_t clock = 0;  ///< the time, see timeline::now()
};

/// Some records of a rank, as bytes.
struct Records {
  int rank = 0;
  int64_t made = 0;  ///< by the rank, in all
  std::string bytes;
};

// Values as contents of messages, and back; none if the content is not one of that kind. Pure.
std::string encode(const Hello& hello);
std::optional<Hello> decode_hello(const Message& message);
/// Not encrypted yet.
std::string encode(const JobSpec& spec);
std::optional<JobSpec> decode_job_spec(const Message& message);
/// Of kResult, and of kRefused.
std::string encode(const JobResult& result);
std::optional<JobResult> decode_result(const Message& message);
std::string encode(const Signals::Event& event);
std::optional<Signals::Event> decode_signal(const Message& message);
/// The warnings of kReady.
std::string encode(const std::vector<std::string>& warnings);
std::optional<std::vector<std::string>> decode_warnings(const Message& message);
/// The states of ranks, as in runtime::RankStatusFile.
std::string encode(const std::vector<int>& states);
std::optional<std::vector<int>> decode_states(const Message& message);
std::string encode(const Time& time);
std::optional<Time> decode_time(const Message& message);
std::string encode(const timeline::ClockDrift& clock);
std::optional<timeline::ClockDrift> decode_clock(const Message& message);
/// The sequence number of kSnapshotNumber.
std::string encode(uint64_t number);
std::optional<uint64_t> decode_number(const Message& message);
std::string encode(const Records& records);
std::optional<Records> decode_records(const Message& message);

}  // namespace tarantella::launch
