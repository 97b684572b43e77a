// find_allocation: an input has lines NAME=VALUE, which are the environment, and after an empty line the host file,
// which gpus_of_resources reads as well.

#include "launch/hosts/allocation.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "launch/hosts/hostlist.h"
#include "target.h"

using tarantella::Result;
using tarantella::fuzz::require;
using tarantella::launch::Environment;
using tarantella::launch::find_allocation;
using tarantella::launch::Host;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  Environment environment;
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) environment[line.substr(0, equals)] = line.substr(equals + 1);
  }
  const std::string file(std::istreambuf_iterator<char>(in), {});
  require(tarantella::launch::gpus_of_resources(file).value_or(1) > 0, "there is a GPU");
  const auto found =
      find_allocation(environment, [&](const std::string&) { return Result<std::string>(file); });
  if (!found.ok()) {
    const std::string message = found.status().message();
    require(
        std::none_of(message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
        "the message is one printable line");
    require(message.ends_with("; --hostfile names them instead"), "the message has the cure");
    return 0;
  }
  if (!found.value()) return 0;
  std::set<std::string> names;
  for (const Host& host : found.value()->hosts) {
    names.insert(host.name);
    require(host.slots.has_value() == found.value()->slots_are_tasks,
            "slots are counted for all hosts or for none");
    require(!host.slots || *host.slots > 0, "a host has a slot");
  }
  require(!names.empty(), "there are hosts");
  return 0;
}
