// tarantella._core: the C interface as Python objects. Arrays are passed through DLPack or the buffer protocol; results
// are new NumPy arrays. The GIL is released while a call waits for other ranks.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "common/checksum.h"
#include "context.h"
#include "errors.h"
#include "tarantella/tarantella.h"
#include "timeline.h"
#include "zero_contributions.h"

namespace nb = nanobind;
using namespace tarantella::python;

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of Tarantella.";
  m.attr("__version__") = tnt_version();

  const auto error = nb::exception<Error>(m, "Error", PyExc_RuntimeError);
  nb::exception<PeerLost>(m, "PeerLostError", error.ptr());
  nb::exception<Mismatch>(m, "MismatchError", error.ptr());
  // also derives from the builtin class, as on one rank without the core
  nb::exception<Timeout>(m, "TimeoutError", nb::make_tuple(error, nb::handle(PyExc_TimeoutError)));

  using namespace nb::literals;
  nb::class_<ZeroContributions>(m, "ZeroContributions")
      .def_prop_ro("before", &ZeroContributions::before)
      .def("stop", &ZeroContributions::stop);
  nb::class_<Context>(m, "Context", "One rank's membership in a job. Methods are collective and block.",
                      nb::is_weak_referenceable())
      .def(nb::init<int, int, int, int, const std::string&, double, double, double, double, double,
                    const std::string&, const std::string&, const std::string&>(),
           "rank"_a, "size"_a, "local_rank"_a, "local_size"_a, "job"_a, "timeout"_a = 300.0,
           "meet_timeout"_a = 60.0, "failure_delay"_a = 3.0, "warn_every"_a = 60.0, "stall_timeout"_a = 0.0,
           "nodes"_a = "", "transport"_a = "", "first_host"_a = "")
      .def_prop_ro("rank", &Context::rank)
      .def_prop_ro("size", &Context::size)
      .def_prop_ro("number", &Context::number)
      .def_prop_ro("local_rank", &Context::local_rank)
      .def_prop_ro("local_size", &Context::local_size)
      .def("group", &Context::group, "ranks"_a)
      .def("allreduce", &Context::allreduce, "array"_a, "name"_a = "", "reduction"_a = "sum",
           "dtype"_a = nb::none())
      .def("reduce_scatter", &Context::reduce_scatter, "array"_a, "name"_a = "", "reduction"_a = "sum",
           "dtype"_a = nb::none())
      .def("broadcast", &Context::broadcast, "array"_a, "root"_a = 0, "name"_a = "", "dtype"_a = nb::none())
      .def("allgather", &Context::allgather, "array"_a, "name"_a = "", "dtype"_a = nb::none())
      .def("allgatherv", &Context::allgatherv, "array"_a, "name"_a = "", "dtype"_a = nb::none())
      .def("alltoall", &Context::alltoall, "array"_a, "splits"_a, "name"_a = "", "dtype"_a = nb::none())
      .def("barrier", &Context::barrier)
      .def("notify", &Context::notify, "name"_a, "result"_a)
      .def("wait_notification", &Context::wait_notification, "rank"_a, "name"_a)
      .def("find_notification", &Context::find_notification, "rank"_a, "name"_a)
      .def("plan", &Context::plan, "name"_a, "tensors"_a, "threshold"_a, "step_check"_a = 0)
      .def("buckets", &Context::buckets, "plan"_a, "tensors"_a)
      .def("check_finite", &Context::check_finite, "plan"_a)
      .def("release", &Context::release, "plan"_a)
      .def("begin_zero_contributions", &Context::begin_zero_contributions, "plan"_a, "tensors"_a)
      .def("finish_zero_contributions", &Context::finish_zero_contributions, "zeros"_a, "steps"_a)
      .def("abort", &Context::abort, "reason"_a, "exit_code"_a)
      .def_prop_ro("exit_code", &Context::exit_code)
      .def("show_stacks", &Context::show_stacks, "signal"_a, "descriptor"_a)
      .def("end_with_job", &Context::end_with_job)
      .def("check", &Context::check)
      .def("await_location_query", &Context::await_location_query)
      .def("report_location", &Context::report_location, "place"_a)
      .def("close", &Context::close);

  m.def(
      "on_sigterm", [](int exit_code) { checked([&] { return tnt_on_sigterm(exit_code); }); }, "exit_code"_a);
  m.def(
      "checksum",
      [](const nb::ndarray<nb::ro, const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes) {
        const nb::gil_scoped_release released;
        tarantella::Checksum checksum;
        if (bytes.size() != 0) checksum.add(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
        return checksum.value();
      },
      "bytes"_a);
  add_timeline(m);
}
