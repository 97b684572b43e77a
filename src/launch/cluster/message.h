#pragma once
// What the launcher of a job on several hosts (the head) and the launcher on each host (a node launcher) say to each
// other: through one TCP connection for each host, which the node launcher opens.
//
// A frame is eight bytes, kind and size as little-endian 32-bit integers, and `size` bytes of content.
//
//   node launcher   kHello    who it is, once both have proved that they know the secret (runtime/door.h)
//   head            kJob      what to run
//   node launcher   kReady    it could start its ranks now, and what the user should know
//                   kRefused  it could not, and why; the connection ends
//   head            kGo       start the ranks; sent when all hosts are ready
//   node launcher   kOutput, kError: output of ranks, for the user's stdout and stderr
//   head            kSignal   pass it on to the ranks, as if the node launcher had got it
//   head            kEnd      end the ranks: the job has failed on another host
//   node launcher   kAlive    once in a while: this host runs
//   both            kAttendance  which ranks have joined or ended: of the host (till all have met), or of all
//   node launcher   kVerdict  all ranks have ended
//
// With --timeline the node launcher also sends
//   before kReady   kAskTime  what does your clock show? Several times; the head answers each with kTime
//   after kVerdict  kAskTime  again
//                   kClock    what the answers have told
//                   kRecords  of its ranks, in pieces
//                   kRecorded that was all, or why there is nothing

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/command.h"
#include "launch/hosts/layout.h"
#include "launch/signals.h"
#include "launch/verdict.h"
#include "timeline/clocks.h"

namespace tarantella::launch {

struct Message {
  enum class Kind : int {
    kHello,
    kJob,
    kReady,
    kRefused,
    kGo,
    kOutput,
    kError,
    kSignal,
    kEnd,
    kAttendance,
    kVerdict,
    kAskTime,
    kTime,
    kClock,
    kRecords,
    kRecorded,
    kAlive
  };
  Kind kind = Kind::kHello;
  std::string content;
};

/// The message as bytes.
std::string framed(Message::Kind kind, std::string_view content);

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

/// The first message of a node launcher.
struct Hello {
  std::string version;
  std::string host;
  int node = -1;
};

/// What a node launcher is to run.
struct JobOrder {
  std::string job_id;
  std::string transport;  ///< TNT_TRANSPORT of the ranks
  std::string folder;     ///< the working folder
  Command command;        ///< runs the script
  bool heeds_user_signals = false;
  bool chosen = false;                   ///< the user has said how many ranks there are
  std::vector<HostShare> shares;         ///< of all nodes
  std::vector<std::string> words;        ///< the command line
  std::vector<std::string> environment;  ///< "NAME=value"
};

/// The answer to a question of this number.
struct Time {
  int question = 0;
  int64_t shown = 0;  ///< by the clock of the timeline
};

/// Some records of a rank, as bytes.
struct Records {
  int rank = 0;
  int64_t made = 0;  ///< by the rank, in all
  std::string bytes;
};

// Contents of messages, and back; none if the content is not one of that kind. Pure.
std::string content_of(const Hello& hello);
std::optional<Hello> hello_in(const Message& message);
std::string content_of(const JobOrder& order);
std::optional<JobOrder> order_in(const Message& message);
/// Of kVerdict, and of kRefused.
std::string content_of(const Verdict& verdict);
std::optional<Verdict> verdict_in(const Message& message);
std::string content_of(const Signals::Event& event);
std::optional<Signals::Event> signal_in(const Message& message);
/// The warnings of kReady.
std::string content_of(const std::vector<std::string>& warnings);
std::optional<std::vector<std::string>> warnings_in(const Message& message);
/// The states of ranks, as in runtime::Attendance.
std::string content_of(const std::vector<int>& states);
std::optional<std::vector<int>> states_in(const Message& message);
std::string content_of(const Time& time);
std::optional<Time> time_in(const Message& message);
std::string content_of(const timeline::Shift& clock);
std::optional<timeline::Shift> clock_in(const Message& message);
std::string content_of(const Records& records);
std::optional<Records> records_in(const Message& message);

}  // namespace tarantella::launch
