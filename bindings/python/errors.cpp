#include "errors.h"

namespace tarantella::python {

void throw_error(tnt_code code, const std::string& message) {
  switch (code) {
    case TNT_INVALID_ARGUMENT:
      throw nanobind::value_error(message.c_str());
    case TNT_TIMEOUT:
      throw Timeout(message);
    case TNT_PEER_LOST:
      throw PeerLost(message);
    case TNT_MISMATCH:
      throw Mismatch(message);
    case TNT_OUT_OF_MEMORY:
      PyErr_SetString(PyExc_MemoryError, message.c_str());
      throw nanobind::python_error();
    default:
      throw Error(message);
  }
}

}  // namespace tarantella::python
