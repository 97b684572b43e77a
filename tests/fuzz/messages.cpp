// MessageReader, the contents of messages, and the timelines that they bring: an input is what arrives through a
// connection.

#include <string>
#include <vector>

#include "launch/cluster/message.h"
#include "launch/cluster/timelines.h"
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
  const std::vector<HostShare> shares{{"node1", 0, 2}, {"node2", 2, 1}};
  AllTimelines timelines(options, shares);
  for (const Message& message : messages) {
    if (const auto hello = hello_in(message)) {
      require(hello_in({message.kind, content_of(*hello)}).has_value(), "a hello comes back");
    }
    if (const auto order = order_in(message)) {
      const auto again = order_in({message.kind, content_of(*order)});
      require(again && again->shares == order->shares && again->words == order->words, "an order comes back");
    }
    if (const auto warnings = warnings_in(message)) {
      require(warnings_in({message.kind, content_of(*warnings)}) == warnings, "warnings come back");
    }
    if (const auto verdict = verdict_in(message)) {
      require(verdict_in({message.kind, content_of(*verdict)})->words == verdict->words,
              "a verdict comes back");
    }
    if (const auto event = signal_in(message)) require(event->number > 0, "a signal has a number");
    if (const auto time = time_in(message)) {
      require(time_in({message.kind, content_of(*time)})->shown == time->shown, "a time comes back");
    }
    if (const auto clock = clock_in(message)) {
      require(clock_in({message.kind, content_of(*clock)})->end().by == clock->end().by,
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
