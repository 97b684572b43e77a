// MessageReader, the contents of messages, and the timelines that they bring: an input is what arrives through a
// connection.

#include <string>
#include <vector>

#include "launch/cluster/host_timelines.h"
#include "launch/cluster/protocol.h"
#include "target.h"

using tarantella::fuzz::require;
using namespace tarantella::launch;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  MessageReader whole, halves;
  const auto messages = whole.add(bytes);
  auto others = halves.add(bytes.substr(0, size / 2));
  for (Message& message : halves.add(bytes.substr(size / 2))) others.push_back(std::move(message));
  require(messages.size() == others.size() && whole.broken() == halves.broken(), "pieces change nothing");
  Options options;
  options.timeline = "t.json";
  const std::vector<HostAssignment> assignments{{"node1", 0, 2}, {"node2", 2, 1}};
  JobTimelines timelines(options, assignments);
  for (const Message& message : messages) {
    if (const auto hello = decode_hello(message)) {
      require(decode_hello({message.kind, encode(*hello)}).has_value(), "a hello comes back");
    }
    if (const auto spec = decode_job_spec(message)) {
      const auto again = decode_job_spec({message.kind, encode(*spec)});
      require(again && again->assignments == spec->assignments && again->options == spec->options,
              "a job's description comes back");
    }
    if (const auto warnings = decode_warnings(message)) {
      require(decode_warnings({message.kind, encode(*warnings)}) == warnings, "warnings come back");
    }
    if (const auto result = decode_result(message)) {
      require(decode_result({message.kind, encode(*result)})->message == result->message,
              "a result comes back");
    }
    if (const auto event = decode_signal(message)) require(event->number > 0, "a signal has a number");
    if (const auto time = decode_time(message)) {
      require(decode_time({message.kind, encode(*time)})->clock == time->clock, "a time comes back");
    }
    if (const auto clock = decode_clock(message)) {
      require(decode_clock({message.kind, encode(*clock)})->end().by == clock->end().by,
              "a clock comes back");
      require(!clock->words().empty(), "a clock has words");
    }
    for (const size_t node : {size_t{0}, size_t{1}}) timelines.take(node, message);
  }
  for (const auto& process : timelines.processes()) {
    require(process.rank >= 0 && process.rank < 3, "records are of a rank of the job");
    for (const auto& record : process.timeline.records()) (void)process.clock.there(record.thread);
  }
  return 0;
}
