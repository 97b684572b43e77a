// The core's errors as exceptions, which nanobind turns into those of Python.

#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

#include "tarantella/tarantella.h"

namespace tarantella::python {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct PeerLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Timeout : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws the exception of `code`, which is not TNT_OK. Needs the GIL.
[[noreturn]] void throw_error(tnt_code code, const std::string& message);

/// Runs `call` without the GIL and throws its error as a Python exception.
template <typename Call>
void checked(Call call) {
  tnt_code code = TNT_OK;
  std::string message;
  {
    const nanobind::gil_scoped_release unlocked;
    code = call();
    if (code != TNT_OK) message = tnt_last_error();
  }
  if (code != TNT_OK) throw_error(code, message);
}

}  // namespace tarantella::python
