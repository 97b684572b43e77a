// Hello and Answer: an input is what a program sends that has connected to the leader of machine 0, or has its port.

#include "runtime/handshake.h"

#include <algorithm>
#include <cstring>

#include "target.h"

using tarantella::Code;
using tarantella::fuzz::require;
using namespace tarantella::runtime;

namespace {

template <typename T>
T begin_of(const uint8_t* data, size_t size) {
  T message{};
  std::memcpy(&message, data, std::min(size, sizeof message));
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const BootstrapOptions options{.host = "node1", .job_id = "job", .layout = "2,2,1", .node = 0, .nodes = 3};
  auto hello = begin_of<Hello>(data, size);
  end_texts(hello);
  const tarantella::Status verdict = judge(hello, options);
  require(!verdict.ok() || (hello.node > 0 && hello.node < options.nodes),
          "a leader has a machine of the job");
  require(verdict.message().size() < 256, "the verdict is short");
  auto answer = begin_of<Answer>(data, size);
  const tarantella::Status told = status_of(answer);
  require(told.ok() == (answer.code == 0) && told.code() <= Code::kSystem, "the code is one of ours");
  require(told.message().size() < sizeof answer.message, "the message ends");
  return 0;
}
