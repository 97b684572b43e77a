#include "dtypes.h"

#include <array>
#include <cstdint>

namespace nb = nanobind;

namespace tarantella::python {

namespace {

struct DType {
  const char* name;
  tnt_dtype number;
  nb::dlpack::dtype dlpack;
};

constexpr uint8_t code(nb::dlpack::dtype_code number) { return static_cast<uint8_t>(number); }

constexpr std::array<DType, 13> kDtypes{{
    {"float32", TNT_FLOAT32, nb::dtype<float>()},
    {"float64", TNT_FLOAT64, nb::dtype<double>()},
    {"int32", TNT_INT32, nb::dtype<int32_t>()},
    {"int64", TNT_INT64, nb::dtype<int64_t>()},
    {"float16", TNT_FLOAT16, {code(nb::dlpack::dtype_code::Float), 16, 1}},
    {"bfloat16", TNT_BFLOAT16, {code(nb::dlpack::dtype_code::Bfloat), 16, 1}},
    {"bool", TNT_BOOL, nb::dtype<bool>()},
    {"uint8", TNT_UINT8, nb::dtype<uint8_t>()},
    {"int8", TNT_INT8, nb::dtype<int8_t>()},
    {"int16", TNT_INT16, nb::dtype<int16_t>()},
    {"uint16", TNT_UINT16, nb::dtype<uint16_t>()},
    {"uint32", TNT_UINT32, nb::dtype<uint32_t>()},
    {"uint64", TNT_UINT64, nb::dtype<uint64_t>()},
}};

std::string names_of_dtypes() {
  std::string names;
  for (const DType& each : kDtypes) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

}  // namespace

tnt_dtype dtype_named(const std::string& name) {
  for (const DType& each : kDtypes) {
    if (each.name == name) return each.number;
  }
  throw nb::type_error(("supported dtypes are " + names_of_dtypes() + ", not " + name).c_str());
}

tnt_dtype dtype_of(const Input& array, const std::optional<std::string>& name) {
  for (const DType& each : kDtypes) {
    if (name ? each.name == *name && each.dlpack.bits == array.dtype().bits : each.dlpack == array.dtype())
      return each.number;
  }
  if (name) throw nb::type_error(("an array with another element size cannot be read as " + *name).c_str());
  throw nb::type_error(("supported dtypes are " + names_of_dtypes() + "; convert the array first").c_str());
}

tnt_reduction reduction_named(const std::string& name) {
  const char* const names[] = {"sum", "min", "max", "and", "or", "average"};
  for (int i = 0; i < 6; ++i) {
    if (name == names[i]) return static_cast<tnt_reduction>(i + 1);
  }
  throw nb::value_error(("unknown reduction " + name + "; use sum, min, max, and, or, average").c_str());
}

}  // namespace tarantella::python
