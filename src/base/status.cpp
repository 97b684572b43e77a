#include "base/status.h"

#include <system_error>

namespace tarantella {

Status Status::system(const std::string& what, int error) {
  return {Code::kSystem, text(what, ": ", std::generic_category().message(error), " (errno ", error, ")")};
}

}  // namespace tarantella
