// tarantella._core: the C interface as Python objects. Arrays are passed through DLPack or the buffer protocol; results
// are new NumPy arrays. The GIL is released while a call waits for other ranks.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tarantella/tarantella.h"
#include "timeline.h"

namespace nb = nanobind;

namespace {

using Input = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::numpy>;
using TensorSpec = std::tuple<std::string, std::string, std::vector<int64_t>>;

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

/// Runs `call` without the GIL and throws its error as a Python exception.
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

struct DType {
  const char* name;
  tnt_dtype number;
  nb::dlpack::dtype dlpack;
};

constexpr uint8_t code(nb::dlpack::dtype_code number) { return static_cast<uint8_t>(number); }

const std::array<DType, 13> dtypes{{
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
  for (const DType& each : dtypes) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

tnt_dtype dtype_named(const std::string& name) {
  for (const DType& each : dtypes) {
    if (each.name == name) return each.number;
  }
  throw nb::type_error(("the core carries " + names_of_dtypes() + ", not " + name).c_str());
}

/// The dtype of the array, or the dtype `name` of the same size, as which its bytes are to be read.
tnt_dtype dtype_of(const Input& array, const std::optional<std::string>& name) {
  for (const DType& each : dtypes) {
    if (name ? each.name == *name && each.dlpack.bits == array.dtype().bits : each.dlpack == array.dtype())
      return each.number;
  }
  if (name) throw nb::type_error(("an array of another size cannot be taken as " + *name).c_str());
  throw nb::type_error(("the core carries " + names_of_dtypes() + "; convert the array first").c_str());
}

tnt_reduction reduction_named(const std::string& name) {
  const char* const names[] = {"sum", "min", "max", "and", "or", "average"};
  for (int i = 0; i < 6; ++i) {
    if (name == names[i]) return static_cast<tnt_reduction>(i + 1);
  }
  throw nb::value_error(("there is no reduction " + name + "; use sum, min, max, and, or, average").c_str());
}

/// A new array of the given shape with the dtype of `like`.
Output new_array(const Input& like, const std::vector<size_t>& shape) {
  size_t bytes = like.itemsize();
  for (const size_t extent : shape) bytes *= extent;
  std::byte* data = std::make_unique_for_overwrite<std::byte[]>(bytes).release();
  const nb::capsule owner(data, [](void* pointer) noexcept { delete[] static_cast<std::byte*>(pointer); });
  return Output(data, shape.size(), shape.data(), owner, nullptr, like.dtype());
}

std::vector<size_t> shape_of(const Input& array) {
  return {array.shape_ptr(), array.shape_ptr() + array.ndim()};
}

/// The shape of `array` with `first` as its first dimension.
std::vector<size_t> shape_of(const Input& array, size_t first, const char* operation) {
  if (array.ndim() == 0)
    throw nb::value_error((std::string(operation) + " needs arrays of one dimension or more").c_str());
  std::vector<size_t> shape = shape_of(array);
  shape[0] = first;
  return shape;
}

uint64_t hash_of(const std::vector<size_t>& shape) {
  uint64_t hash = shape.size();
  for (const size_t extent : shape) hash = hash * 1'000'003 + extent;
  return hash;
}

/// Zeros in the place of a plan's tensors; Context::finish_zeros() ends them.
class Zeros {
 public:
  Zeros(tnt_plan plan, size_t tensors) : before_(tensors) {
    checked([&] { return tnt_zeros_begin(plan, tensors, before_.data(), &zeros_); });
  }
  ~Zeros() {
    const nb::gil_scoped_release unlocked;
    tnt_zeros_release(zeros_);
  }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;

  const std::vector<uint64_t>& before() const { return before_; }
  std::vector<uint64_t> stop() {
    std::vector<uint64_t> steps(before_.size());
    checked([&] { return tnt_zeros_stop(zeros_, steps.data()); });
    return steps;
  }
  tnt_code finish(const std::vector<uint64_t>& steps) const { return tnt_zeros_finish(zeros_, steps.data()); }
  size_t tensors() const { return before_.size(); }

 private:
  tnt_zeros* zeros_ = nullptr;
  std::vector<uint64_t> before_;
};

class Context {
 public:
  Context(int rank, int size, int local_rank, int local_size, const std::string& job, double timeout,
          double meet_timeout, double grace, double warn_every, double stall_timeout,
          const std::string& nodes, const std::string& transport, const std::string& first_host)
      : rank_(rank),
        size_(size),
        local_rank_(local_rank),
        local_size_(local_size),
        spans_machines_(size != local_size) {
    const tnt_options options{
        rank,  size,       job.c_str(),   meet_timeout,      timeout,           stall_timeout,
        grace, warn_every, nodes.c_str(), transport.c_str(), first_host.c_str()};
    checked([&] { return tnt_context_create(&options, &context_); });
  }
  /// A group of `parent`, on one machine.
  Context(tnt_context* context, const Context& parent)
      : context_(context),
        rank_(tnt_context_rank(context)),
        size_(tnt_context_size(context)),
        local_rank_(parent.local_rank_),
        local_size_(parent.local_size_) {}
  ~Context() { close(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t number() const { return tnt_context_number(context_); }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  Output allreduce(const Input& array, const std::string& name, const std::string& reduction,
                   const std::optional<std::string>& dtype) {
    Output result = new_array(array, shape_of(array));
    const bool goes_on = tnt_failure(context_) == TNT_OK;
    try {
      inside([&, type = dtype_of(array, dtype), kind = reduction_named(reduction)] {
        return tnt_allreduce(context_, array.data(), result.data(), array.size(), type, kind, name.c_str());
      });
    } catch (...) {
      // never freed: other machines may still receive them
      if (spans_machines_ && goes_on && tnt_failure(context_) != TNT_OK) new std::pair(array, result);
      throw;
    }
    return result;
  }

  Output reduce_scatter(const Input& array, const std::string& name, const std::string& reduction,
                        const std::optional<std::string>& dtype) {
    const auto size = static_cast<size_t>(size_);
    if (array.ndim() == 0 || array.shape(0) % size != 0)
      throw nb::value_error("reduce_scatter needs a first dimension that the number of ranks divides");
    Output result = new_array(array, shape_of(array, array.shape(0) / size, "reduce_scatter"));
    inside([&, type = dtype_of(array, dtype), kind = reduction_named(reduction)] {
      return tnt_reduce_scatter(context_, array.data(), result.data(), result.size(), type, kind,
                                name.c_str());
    });
    return result;
  }

  Output broadcast(const Input& array, int root, const std::string& name,
                   const std::optional<std::string>& dtype) {
    Output result = new_array(array, shape_of(array));
    std::memcpy(result.data(), array.data(), array.nbytes());
    inside([&, type = dtype_of(array, dtype)] {
      return tnt_broadcast(context_, result.data(), array.size(), type, root, name.c_str());
    });
    return result;
  }

  Output allgather(const Input& array, const std::string& name, const std::optional<std::string>& dtype) {
    std::vector<size_t> shape = shape_of(array);
    shape.insert(shape.begin(), static_cast<size_t>(size_));
    Output result = new_array(array, shape);
    const std::vector<uint64_t> counts(static_cast<size_t>(size_), array.size());
    inside([&, type = dtype_of(array, dtype)] {
      return tnt_allgather(context_, array.data(), result.data(), counts.data(), type, name.c_str());
    });
    return result;
  }

  Mismatch another_shape(const std::string& operation, const std::string& name, size_t rank) const {
    const auto number = [this](size_t r) {
      return std::to_string(tnt_context_job_rank(context_, static_cast<int>(r)));
    };
    return Mismatch(operation + " \"" + name + "\": the rows of rank " + number(rank) +
                    " have another shape than those of rank " + number(0) +
                    "; only first dimensions may differ");
  }

  /// The numbers of all ranks, in rank order; the same count from each rank.
  std::vector<uint64_t> gather(const std::vector<uint64_t>& numbers, const std::string& name) {
    std::vector<uint64_t> all(numbers.size() * static_cast<size_t>(size_));
    const std::vector<uint64_t> counts(static_cast<size_t>(size_), numbers.size());
    inside([&] {
      return tnt_allgather(context_, numbers.data(), all.data(), counts.data(), TNT_INT64, name.c_str());
    });
    return all;
  }

  Output allgatherv(const Input& array, const std::string& name, const std::optional<std::string>& dtype) {
    const std::vector<size_t> row = shape_of(array, 1, "allgatherv");
    const tnt_dtype type = dtype_of(array, dtype);
    const uint64_t elements = std::accumulate(row.begin(), row.end(), uint64_t{1}, std::multiplies<>());
    // fails here on a rank whose rows have another shape, before data is exchanged
    const std::vector<uint64_t> all = gather({array.shape(0), hash_of(row)}, name);
    std::vector<uint64_t> counts;
    uint64_t rows = 0;
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      if (all[2 * rank + 1] != all[1]) throw another_shape("allgatherv", name, rank);
      rows += all[2 * rank];
      counts.push_back(all[2 * rank] * elements);
    }
    Output result = new_array(array, shape_of(array, rows, "allgatherv"));
    inside([&] {
      return tnt_allgather(context_, array.data(), result.data(), counts.data(), type, name.c_str());
    });
    return result;
  }

  Output alltoall(const Input& array, const std::vector<uint64_t>& splits, const std::string& name,
                  const std::optional<std::string>& dtype) {
    const auto size = static_cast<size_t>(size_);
    const std::vector<size_t> row = shape_of(array, 1, "alltoall");
    const tnt_dtype type = dtype_of(array, dtype);
    if (splits.size() != size || std::accumulate(splits.begin(), splits.end(), uint64_t{0}) != array.shape(0))
      throw nb::value_error("alltoall needs a split for each rank, with the rows of the array as their sum");
    const uint64_t elements = std::accumulate(row.begin(), row.end(), uint64_t{1}, std::multiplies<>());
    std::vector<uint64_t> told = splits;
    told.push_back(hash_of(row));
    const std::vector<uint64_t> all = gather(told, name);
    std::vector<uint64_t> send;
    std::vector<uint64_t> receive;
    uint64_t rows = 0;
    for (size_t rank = 0; rank < size; ++rank) {
      if (all[rank * (size + 1) + size] != all[size]) throw another_shape("alltoall", name, rank);
      const uint64_t from = all[rank * (size + 1) + static_cast<size_t>(rank_)];
      rows += from;
      send.push_back(splits[rank] * elements);
      receive.push_back(from * elements);
    }
    Output result = new_array(array, shape_of(array, rows, "alltoall"));
    inside([&] {
      return tnt_alltoall(context_, array.data(), send.data(), result.data(), receive.data(), type,
                          name.c_str());
    });
    return result;
  }

  /// A context of some ranks, or None if this rank is not among them.
  std::unique_ptr<Context> group(const std::vector<int>& ranks) {
    tnt_context* made = nullptr;
    inside([&] { return tnt_context_create_group(context_, ranks.data(), ranks.size(), &made); });
    return made == nullptr ? nullptr : std::make_unique<Context>(made, *this);
  }

  void barrier() {
    inside([&] { return tnt_barrier(context_, ""); });
  }

  void post(const std::string& name, uint32_t result) {
    inside([&] { return tnt_post(context_, name.c_str(), result); });
  }

  uint32_t wait_posted(int rank, const std::string& name) {
    uint32_t result = 0;
    inside([&] { return tnt_wait_posted(context_, rank, name.c_str(), &result); });
    return result;
  }

  std::optional<uint32_t> find_posted(int rank, const std::string& name) {
    int found = 0;
    uint32_t result = 0;
    inside([&] { return tnt_find_posted(context_, rank, name.c_str(), &found, &result); });
    return found != 0 ? std::optional(result) : std::nullopt;
  }

  tnt_plan plan(const std::string& name, const std::vector<TensorSpec>& specs, size_t threshold,
                int numbers) {
    std::vector<tnt_tensor> tensors;
    for (const auto& [tensor_name, dtype, shape] : specs) {
      tensors.push_back({tensor_name.c_str(), dtype_named(dtype), shape.data(), shape.size()});
    }
    tnt_plan number = 0;
    inside([&] {
      return tnt_plan_create(context_, name.c_str(), tensors.data(), tensors.size(), threshold, TNT_HOST,
                             static_cast<tnt_numbers>(numbers), &number);
    });
    return number;
  }

  /// The bucket of each tensor of the plan.
  std::vector<size_t> buckets(tnt_plan plan, size_t tensors) {
    std::vector<size_t> found(tensors);
    for (size_t i = 0; i < tensors; ++i) {
      inside([&] { return tnt_plan_bucket(plan, i, &found[i]); });
    }
    return found;
  }

  void check_finite(tnt_plan plan) {
    inside([&] { return tnt_plan_check_finite(plan); });
  }

  void release(tnt_plan plan) {
    inside([&] { return tnt_plan_release(plan); });
  }

  std::unique_ptr<Zeros> begin_zeros(tnt_plan plan, size_t tensors) {
    return std::make_unique<Zeros>(plan, tensors);
  }

  void finish_zeros(const Zeros& zeros, const std::vector<uint64_t>& steps) {
    if (steps.size() != zeros.tensors()) throw nb::value_error("finish_zeros needs a number for each tensor");
    inside([&] { return zeros.finish(steps); });
  }

  void abort(const std::string& reason, int exit_code) {
    if (context_ != nullptr) inside([&] { return tnt_abort(context_, reason.c_str(), exit_code); });
  }

  /// That with which the rank ends that has ended the job's communication; 0 if it is unknown.
  int exit_code() const { return context_ == nullptr ? 0 : tnt_exit_code(context_); }

  void show_stacks(int signal, int descriptor) {
    inside([&] { return tnt_show_stacks(context_, signal, descriptor); });
  }

  void end_with_job() {
    inside([&] { return tnt_end_with_job(context_); });
  }

  /// Raises the first error that ended the job's communication, if there is one.
  void check() {
    if (context_ != nullptr) inside([&] { return tnt_failure(context_); });
  }

  /// Blocks until another rank asks where this one is; false once the context is closed.
  bool await_question() {
    const Counted counted(calls_);
    const nb::gil_scoped_release unlocked;
    return tnt_await_question(context_, &questions_) == TNT_OK;
  }

  void tell_place(const std::string& place) {
    inside([&] { return tnt_tell_place(context_, place.c_str()); });
  }

  /// None, or why this rank's cores may go idle all the same.
  std::optional<std::string> keep_awake(bool several) {
    if (context_ == nullptr) return "the context is closed";
    try {
      inside([&] { return tnt_keep_awake(context_, several ? 1 : 0); });
    } catch (const Error& reason) {
      return reason.what();
    }
    return std::nullopt;
  }

  void let_sleep() {
    if (context_ != nullptr) inside([&] { return tnt_let_sleep(context_); });
  }

  double awake_seconds() {
    double seconds = 0;
    if (context_ != nullptr) inside([&] { return tnt_awake_seconds(context_, &seconds); });
    return seconds;
  }

  /// Ends the calls of other threads, and returns when these have the GIL again: the interpreter may end then.
  void close() {
    if (context_ == nullptr || std::exchange(closing_, true)) return;
    {
      const nb::gil_scoped_release unlocked;
      tnt_context_close(context_);
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (calls_ != 0) {
      // the process must end even if a call of another thread does not
      if (std::chrono::steady_clock::now() > limit) return;
      const nb::gil_scoped_release unlocked;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    tnt_context* const context = std::exchange(context_, nullptr);
    const nb::gil_scoped_release unlocked;
    tnt_context_destroy(context);
  }

 private:
  /// A running call, whose context another thread's close() must not destroy.
  class Counted {
   public:
    explicit Counted(int& calls) : calls_(calls) { ++calls_; }
    ~Counted() { --calls_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    int& calls_;
  };

  template <typename Call>
  void inside(Call call) {
    const Counted counted(calls_);
    checked(call);
  }

  tnt_context* context_ = nullptr;
  int calls_ = 0;         ///< inside the core; guarded by the GIL
  bool closing_ = false;  ///< guarded by the GIL
  uint32_t questions_ = 0;
  const int rank_, size_, local_rank_, local_size_;
  const bool spans_machines_ = false;
};

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of Tarantella.";
  m.attr("__version__") = tnt_version();

  const auto error = nb::exception<Error>(m, "Error", PyExc_RuntimeError);
  nb::exception<PeerLost>(m, "PeerLostError", error.ptr());
  nb::exception<Mismatch>(m, "MismatchError", error.ptr());
  // also derives from the builtin class, as on one rank without the core
  nb::exception<Timeout>(m, "TimeoutError", nb::make_tuple(error, nb::handle(PyExc_TimeoutError)));

  using namespace nb::literals;
  nb::class_<Zeros>(m, "Zeros").def_prop_ro("before", &Zeros::before).def("stop", &Zeros::stop);
  nb::class_<Context>(m, "Context", "One rank's membership in a job. Methods are collective and block.",
                      nb::is_weak_referenceable())
      .def(nb::init<int, int, int, int, const std::string&, double, double, double, double, double,
                    const std::string&, const std::string&, const std::string&>(),
           "rank"_a, "size"_a, "local_rank"_a, "local_size"_a, "job"_a, "timeout"_a = 300.0,
           "meet_timeout"_a = 60.0, "grace"_a = 3.0, "warn_every"_a = 60.0, "stall_timeout"_a = 0.0,
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
      .def("post", &Context::post, "name"_a, "result"_a)
      .def("wait_posted", &Context::wait_posted, "rank"_a, "name"_a)
      .def("find_posted", &Context::find_posted, "rank"_a, "name"_a)
      .def("plan", &Context::plan, "name"_a, "tensors"_a, "threshold"_a, "numbers"_a = 0)
      .def("buckets", &Context::buckets, "plan"_a, "tensors"_a)
      .def("check_finite", &Context::check_finite, "plan"_a)
      .def("release", &Context::release, "plan"_a)
      .def("begin_zeros", &Context::begin_zeros, "plan"_a, "tensors"_a)
      .def("finish_zeros", &Context::finish_zeros, "zeros"_a, "steps"_a)
      .def("abort", &Context::abort, "reason"_a, "exit_code"_a)
      .def_prop_ro("exit_code", &Context::exit_code)
      .def("show_stacks", &Context::show_stacks, "signal"_a, "descriptor"_a)
      .def("end_with_job", &Context::end_with_job)
      .def("check", &Context::check)
      .def("await_question", &Context::await_question)
      .def("tell_place", &Context::tell_place, "place"_a)
      .def("keep_awake", &Context::keep_awake, "several"_a = false)
      .def("let_sleep", &Context::let_sleep)
      .def("awake_seconds", &Context::awake_seconds)
      .def("close", &Context::close);

  m.def(
      "on_sigterm", [](int exit_code) { checked([&] { return tnt_on_sigterm(exit_code); }); }, "exit_code"_a);
  add_timeline(m);
}
