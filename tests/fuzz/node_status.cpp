// NodeStatus: an input is what arrives from the leader of another node, and lies over what has arrived before.

#include "collective/internode/node_status.h"

#include <algorithm>
#include <cstring>

#include "target.h"

using tarantella::collective::internode::NodeStatus;
using tarantella::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  NodeStatus status;
  std::memset(&status.wait_name, 'x', sizeof status.wait_name);
  std::memset(&status.message, 'x', sizeof status.message);
  std::memcpy(reinterpret_cast<char*>(&status), data, std::min(size, sizeof status));
  status.end_texts();
  require(std::strlen(status.wait_name.data()) < status.wait_name.size(), "the name of a wait ends");
  const tarantella::Status failure = status.failure();
  require(failure.ok() == (status.code == 0), "what is not ok is a failure");
  require(failure.message().size() < status.message.size(), "the message ends");
  require(failure.code() <= tarantella::Code::kSystem, "the code is one of ours");
  return 0;
}
