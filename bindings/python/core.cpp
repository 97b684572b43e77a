// tarantella._core: the C interface as Python objects. Arrays come in through DLPack or the buffer protocol; results
// are new NumPy arrays. The interpreter's lock is released while a call waits for other ranks.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tarantella/tarantella.h"

namespace nb = nanobind;

namespace {

using Input = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::numpy>;
using TensorSpec = std::tuple<std::string, std::string, std::vector<int64_t>>;
using Record = std::tuple<int64_t, std::string, uint32_t>;

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

[[noreturn]] void throw_error(tnt_code code, const std::string& message) {
  switch (code) {
    case TNT_INVALID_ARGUMENT:
      throw nb::value_error(message.c_str());
    case TNT_TIMEOUT:
      throw Timeout(message);
    case TNT_PEER_LOST:
      throw PeerLost(message);
    case TNT_MISMATCH:
      throw Mismatch(message);
    case TNT_OUT_OF_MEMORY:
      PyErr_SetString(PyExc_MemoryError, message.c_str());
      throw nb::python_error();
    default:
      throw Error(message);
  }
}

/// Runs `call` without the interpreter's lock and throws what it reports.
template <typename Call>
void checked(Call call) {
  tnt_code code = TNT_OK;
  std::string message;
  {
    const nb::gil_scoped_release unlocked;
    code = call();
    if (code != TNT_OK) message = tnt_last_error();
  }
  if (code != TNT_OK) throw_error(code, message);
}

tnt_dtype dtype_of(const nb::dlpack::dtype& dtype) {
  if (dtype == nb::dtype<float>()) return TNT_FLOAT32;
  if (dtype == nb::dtype<double>()) return TNT_FLOAT64;
  if (dtype == nb::dtype<int32_t>()) return TNT_INT32;
  if (dtype == nb::dtype<int64_t>()) return TNT_INT64;
  throw nb::type_error("the core carries float32, float64, int32 and int64; convert the array first");
}

tnt_dtype dtype_named(const std::string& name) {
  if (name == "float32") return TNT_FLOAT32;
  if (name == "float64") return TNT_FLOAT64;
  if (name == "int32") return TNT_INT32;
  if (name == "int64") return TNT_INT64;
  throw nb::type_error(("the core carries float32, float64, int32 and int64, not " + name).c_str());
}

/// A new array with the elements' type of `like`; `leading` (if any) comes before its shape.
Output new_array(const Input& like, std::optional<size_t> leading = std::nullopt) {
  std::vector<size_t> shape;
  if (leading) shape.push_back(*leading);
  for (size_t i = 0; i < like.ndim(); ++i) shape.push_back(like.shape(i));
  size_t bytes = like.itemsize();
  for (const size_t extent : shape) bytes *= extent;
  auto memory = std::make_unique<std::byte[]>(bytes);
  std::byte* data = memory.release();
  const nb::capsule owner(data, [](void* pointer) noexcept { delete[] static_cast<std::byte*>(pointer); });
  return Output(data, shape.size(), shape.data(), owner, nullptr, like.dtype());
}

class Context {
 public:
  Context(int rank, int size, int local_rank, int local_size, const std::string& job, double timeout,
          double meet_timeout, double grace)
      : rank_(rank), size_(size), local_rank_(local_rank), local_size_(local_size) {
    const tnt_options options{rank, size, job.c_str(), meet_timeout, timeout, grace};
    checked([&] { return tnt_context_create(&options, &context_); });
  }
  ~Context() { close(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  Output allreduce(const Input& array, const std::string& name) {
    const tnt_dtype dtype = dtype_of(array.dtype());
    Output result = new_array(array);
    checked([&] {
      return tnt_allreduce(open(), array.data(), result.data(), array.size(), dtype, name.c_str());
    });
    return result;
  }

  Output broadcast(const Input& array, int root, const std::string& name) {
    const tnt_dtype dtype = dtype_of(array.dtype());
    Output result = new_array(array);
    std::memcpy(result.data(), array.data(), array.nbytes());
    checked([&] { return tnt_broadcast(open(), result.data(), array.size(), dtype, root, name.c_str()); });
    return result;
  }

  Output allgather(const Input& array, const std::string& name) {
    const tnt_dtype dtype = dtype_of(array.dtype());
    Output result = new_array(array, static_cast<size_t>(size_));
    checked([&] {
      return tnt_allgather(open(), array.data(), result.data(), array.size(), dtype, name.c_str());
    });
    return result;
  }

  void barrier() {
    checked([&] { return tnt_barrier(open(), ""); });
  }

  tnt_plan plan(const std::string& name, const std::vector<TensorSpec>& specs, size_t threshold) {
    std::vector<tnt_tensor> tensors;
    for (const auto& [tensor_name, dtype, shape] : specs) {
      tensors.push_back({tensor_name.c_str(), dtype_named(dtype), shape.data(), shape.size()});
    }
    tnt_plan number = 0;
    checked([&] {
      return tnt_plan_create(open(), name.c_str(), tensors.data(), tensors.size(), threshold, &number);
    });
    return number;
  }

  /// The bucket of each tensor of the plan.
  std::vector<size_t> buckets(tnt_plan plan, size_t tensors) {
    std::vector<size_t> found(tensors);
    for (size_t i = 0; i < tensors; ++i) {
      checked([&] { return tnt_plan_bucket(plan, i, &found[i]); });
    }
    return found;
  }

  void release(tnt_plan plan) {
    checked([&] { return tnt_plan_release(plan); });
  }

  std::vector<Record> trace(tnt_plan plan) {
    std::vector<tnt_record> records(4096);
    size_t count = 0;
    checked([&] { return tnt_plan_trace(plan, records.data(), records.size(), &count); });
    const char* const names[] = {"", "submit", "reduced", "done"};
    std::vector<Record> named;
    for (size_t i = 0; i < count; ++i) {
      named.emplace_back(records[i].nanoseconds, names[records[i].event], records[i].index);
    }
    return named;
  }

  /// The first cause that ended the job's communication, or None.
  std::optional<std::string> failure() {
    if (context_ == nullptr) return std::nullopt;
    if (tnt_failure(context_) == TNT_OK) return std::nullopt;
    return tnt_last_error();
  }

  /// Raises the first cause, if there is one.
  void check() {
    if (context_ != nullptr) checked([&] { return tnt_failure(context_); });
  }

  void close() {
    if (context_ == nullptr) return;
    const nb::gil_scoped_release unlocked;
    tnt_context_destroy(std::exchange(context_, nullptr));
  }

 private:
  tnt_context* open() const { return context_; }

  tnt_context* context_ = nullptr;
  const int rank_, size_, local_rank_, local_size_;
};

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of Tarantella.";
  m.attr("__version__") = tnt_version();

  const auto error = nb::exception<Error>(m, "Error", PyExc_RuntimeError);
  nb::exception<PeerLost>(m, "PeerLostError", error.ptr());
  nb::exception<Mismatch>(m, "MismatchError", error.ptr());
  nb::exception<Timeout>(m, "TimeoutError", error.ptr());

  using namespace nb::literals;
  nb::class_<Context>(m, "Context", "One rank's membership in a job. Methods are collective and block.")
      .def(nb::init<int, int, int, int, const std::string&, double, double, double>(), "rank"_a, "size"_a,
           "local_rank"_a, "local_size"_a, "job"_a, "timeout"_a = 300.0, "meet_timeout"_a = 60.0,
           "grace"_a = 3.0)
      .def_prop_ro("rank", &Context::rank)
      .def_prop_ro("size", &Context::size)
      .def_prop_ro("local_rank", &Context::local_rank)
      .def_prop_ro("local_size", &Context::local_size)
      .def("allreduce", &Context::allreduce, "array"_a, "name"_a = "")
      .def("broadcast", &Context::broadcast, "array"_a, "root"_a = 0, "name"_a = "")
      .def("allgather", &Context::allgather, "array"_a, "name"_a = "")
      .def("barrier", &Context::barrier)
      .def("plan", &Context::plan, "name"_a, "tensors"_a, "threshold"_a)
      .def("buckets", &Context::buckets, "plan"_a, "tensors"_a)
      .def("release", &Context::release, "plan"_a)
      .def("trace", &Context::trace, "plan"_a)
      .def("failure", &Context::failure)
      .def("check", &Context::check)
      .def("close", &Context::close);
}
