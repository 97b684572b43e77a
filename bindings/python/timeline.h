#pragma once

#include <nanobind/nanobind.h>

/// Adds the functions of the timeline to the module _core.
void add_timeline(nanobind::module_& m);
