// MessageReader and the contents of messages: an input is what arrives through a connection.

#include <string>

#include "launch/cluster/message.h"
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
  for (const Message& message : messages) {
    if (const auto hello = hello_in(message)) {
      require(hello_in({message.kind, content_of(*hello)}).has_value(), "a hello comes back");
    }
    if (const auto order = order_in(message)) {
      const auto again = order_in({message.kind, content_of(*order)});
      require(again && again->shares == order->shares && again->words == order->words, "an order comes back");
    }
    if (const auto verdict = verdict_in(message)) {
      require(verdict_in({message.kind, content_of(*verdict)})->words == verdict->words,
              "a verdict comes back");
    }
    if (const auto event = signal_in(message)) require(event->number > 0, "a signal has a number");
  }
  return 0;
}
