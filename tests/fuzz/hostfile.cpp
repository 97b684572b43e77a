// parse_hostfile: unique hosts that survive being written and read again, or one line with a place in the file.

#include "launch/hosts/hostfile.h"

#include <algorithm>
#include <set>
#include <string>

#include "launch/hosts/hostlist.h"
#include "target.h"

using tarantella::fuzz::require;
using tarantella::launch::Host;
using tarantella::launch::parse_hostfile;

namespace {

/// Written as one host per line.
std::string written(const std::vector<Host>& hosts) {
  std::string content;
  for (const Host& host : hosts) {
    content += host.name + (host.slots ? " slots=" + std::to_string(*host.slots) : "") + '\n';
  }
  return content;
}

void check_message(const std::string& message, size_t lines) {
  require(message.starts_with("hostfile 'f'"), "the message names the file");
  require(std::none_of(message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
          "the message is one printable line");
  if (message == "hostfile 'f' names no host; write one name per line") return;
  const size_t at = message.find(", line ");
  require(at != std::string::npos && message.find(", column ", at) != std::string::npos,
          "the message has a place");
  require(std::stoul(message.substr(at + 7)) <= lines, "the line exists");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto hosts = parse_hostfile(content, "f");
  if (!hosts.ok()) {
    check_message(hosts.status().message(),
                  1 + static_cast<size_t>(std::count(content.begin(), content.end(), '\n')));
    return 0;
  }
  std::set<std::string> names;
  for (const Host& host : hosts.value()) {
    require(names.insert(host.name).second, "names are unique");
    require(host.slots == hosts.value()[0].slots, "hosts are alike");
  }
  require(!names.empty() && names.size() <= tarantella::launch::kMostHosts,
          "there are hosts, and not too many");
  const auto again = parse_hostfile(written(hosts.value()), "f");
  require(again.ok() && again.value() == hosts.value(), "what is written is read again");
  return 0;
}
