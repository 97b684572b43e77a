// Names of data types and reductions, and those of arrays.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>

#include "tarantella/tarantella.h"

namespace tarantella::python {

using Input = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

tnt_dtype dtype_named(const std::string& name);

/// The dtype of the array, or `name`, a dtype of the same size, to read its bytes as.
tnt_dtype dtype_of(const Input& array, const std::optional<std::string>& name);

tnt_reduction reduction_named(const std::string& name);

}  // namespace tarantella::python
