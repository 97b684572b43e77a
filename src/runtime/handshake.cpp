#include "runtime/handshake.h"

#include <cstring>

#include "base/fixed_text.h"
#include "base/hash.h"

namespace tarantella::runtime {

Hello hello_of(const BootstrapOptions& options) {
  Hello hello{};
  write_text(TARANTELLA_VERSION, hello.version);
  hello.layout = hash_of(options.layout);
  hello.node = options.node;
  return hello;
}

void end_texts(Hello& hello) { hello.version[sizeof hello.version - 1] = '\0'; }

Status judge(const Hello& said, const BootstrapOptions& options) {
  if (std::strcmp(said.version, TARANTELLA_VERSION) != 0)
    return {Code::kMismatch, text("machine ", said.node, " runs tarantella ", said.version, ", machine 0 ",
                                  TARANTELLA_VERSION, "; install one version everywhere")};
  if (said.layout != hash_of(options.layout) || said.node < 1 || said.node >= options.nodes)
    return {Code::kMismatch,
            text("the machines were started with different numbers of ranks (machine 0: ", options.layout,
                 "); start the same number of ranks on each machine, numbered machine by machine")};
  return {};
}

Answer answer_of(const Status& status) {
  Answer answer{static_cast<int32_t>(status.code()), {}};
  write_text(status.message(), answer.message);
  return answer;
}

Status status_of(Answer& answer) {
  answer.message[sizeof answer.message - 1] = '\0';
  const bool known = answer.code >= 0 && answer.code <= static_cast<int32_t>(Code::kSystem);
  return answer.code == 0 ? Status()
                          : Status(known ? static_cast<Code>(answer.code) : Code::kPeerLost, answer.message);
}

}  // namespace tarantella::runtime
