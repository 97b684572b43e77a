#include "timeline.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "tarantella/tarantella.h"

namespace tarantella::python {

namespace {

void check(tnt_code code) {
  if (code != TNT_OK) throw std::runtime_error(tnt_last_error());
}

/// Returns the number of records that were lost.
uint64_t write_file(const std::string& file, int rank) {
  const nanobind::gil_scoped_release unlocked;
  uint64_t lost = 0;
  check(tnt_timeline_write(file.c_str(), rank, &lost));
  return lost;
}

}  // namespace

void add_timeline(nanobind::module_& m) {
  using namespace nanobind::literals;
  m.def(
      "timeline_start", [](int rank, int size) { check(tnt_timeline_start(rank, size)); }, "rank"_a,
      "size"_a);
  m.def(
      "timeline_begin",
      [](int kind, const char* name) { return tnt_timeline_begin(static_cast<tnt_span>(kind), name); },
      "kind"_a, "name"_a);
  m.def(
      "timeline_end", [](uint64_t span, bool forget) { tnt_timeline_end(span, forget ? 1 : 0); }, "span"_a,
      "forget"_a = false);
  m.def("timeline_write", &write_file, "file"_a, "rank"_a);
}

}  // namespace tarantella::python
