#pragma once

#include <nanobind/nanobind.h>

namespace tarantella::python {

/// Adds the functions of the timeline to the module _core.
void add_timeline(nanobind::module_& m);

}  // namespace tarantella::python
