#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "context.h"

namespace nb = nanobind;

namespace tarantella::python {

namespace {

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

/// Arrays that a call uses, and after an error perhaps the core for longer.
struct ZeroCopyArrays {
  Input array;
  Output result;
  std::atomic<int> users{2};  ///< the call, and the core

  /// On any thread, with or without the GIL: the interpreter drops the arrays later, unless it has ended.
  static void on_released(void* user) {
    auto* const arrays = static_cast<ZeroCopyArrays*>(user);
    if (arrays->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    (void)Py_AddPendingCall(
        [](void* last) {
          delete static_cast<ZeroCopyArrays*>(last);
          return 0;
        },
        arrays);
  }
};

/// With the GIL.
struct EndOfCall {
  void operator()(ZeroCopyArrays* arrays) const {
    if (arrays->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete arrays;
  }
};

uint64_t elements_of(const std::vector<size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

uint64_t hash_of(const std::vector<size_t>& shape) {
  uint64_t hash = shape.size();
  for (const size_t extent : shape) hash = hash * 1'000'003 + extent;
  return hash;
}

}  // namespace

Output Context::allreduce(const Input& array, const std::string& name, const std::string& reduction,
                          const std::optional<std::string>& dtype) {
  Output result = new_array(array, shape_of(array));
  const tnt_dtype type = dtype_of(array, dtype);
  const tnt_reduction kind = reduction_named(reduction);
  const std::unique_ptr<ZeroCopyArrays, EndOfCall> arrays(new ZeroCopyArrays{array, result});
  call(tnt_allreduce, array.data(), result.data(), array.size(), type, kind, name.c_str(), nullptr,
       ZeroCopyArrays::on_released, arrays.get());
  return result;
}

Output Context::reduce_scatter(const Input& array, const std::string& name, const std::string& reduction,
                               const std::optional<std::string>& dtype) {
  const auto size = static_cast<size_t>(size_);
  if (array.ndim() == 0 || array.shape(0) % size != 0)
    throw nb::value_error("reduce_scatter needs a first dimension that the number of ranks divides");
  Output result = new_array(array, shape_of(array, array.shape(0) / size, "reduce_scatter"));
  call(tnt_reduce_scatter, array.data(), result.data(), result.size(), dtype_of(array, dtype),
       reduction_named(reduction), name.c_str(), nullptr);
  return result;
}

Output Context::broadcast(const Input& array, int root, const std::string& name,
                          const std::optional<std::string>& dtype) {
  Output result = new_array(array, shape_of(array));
  std::memcpy(result.data(), array.data(), array.nbytes());
  call(tnt_broadcast, result.data(), array.size(), dtype_of(array, dtype), root, name.c_str(), nullptr);
  return result;
}

Output Context::allgather(const Input& array, const std::string& name,
                          const std::optional<std::string>& dtype) {
  std::vector<size_t> shape = shape_of(array);
  shape.insert(shape.begin(), static_cast<size_t>(size_));
  Output result = new_array(array, shape);
  const std::vector<uint64_t> counts(static_cast<size_t>(size_), array.size());
  call(tnt_allgather, array.data(), result.data(), counts.data(), dtype_of(array, dtype), name.c_str(),
       nullptr);
  return result;
}

std::vector<uint64_t> Context::allgather_numbers(std::vector<uint64_t> numbers,
                                                 const std::vector<size_t>& row, const char* operation,
                                                 const std::string& name) {
  const auto size = static_cast<size_t>(size_);
  numbers.push_back(hash_of(row));
  std::vector<uint64_t> all(numbers.size() * size);
  const std::vector<uint64_t> counts(size, numbers.size());
  call(tnt_allgather, numbers.data(), all.data(), counts.data(), TNT_INT64, name.c_str(), nullptr);
  for (size_t rank = 0; rank < size; ++rank) {
    if (all[(rank + 1) * numbers.size() - 1] == all[numbers.size() - 1]) continue;
    const auto number = [this](size_t r) {
      return std::to_string(tnt_context_job_rank(context_, static_cast<int>(r)));
    };
    throw Mismatch(std::string(operation) + " \"" + name + "\": the rows of rank " + number(rank) +
                   " differ in shape from those of rank " + number(0) + "; only first dimensions may differ");
  }
  return all;
}

Output Context::allgatherv(const Input& array, const std::string& name,
                           const std::optional<std::string>& dtype) {
  const std::vector<size_t> row = shape_of(array, 1, "allgatherv");
  const tnt_dtype type = dtype_of(array, dtype);
  const std::vector<uint64_t> all = allgather_numbers({array.shape(0)}, row, "allgatherv", name);
  std::vector<uint64_t> counts;
  uint64_t rows = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
    rows += all[2 * rank];
    counts.push_back(all[2 * rank] * elements_of(row));
  }
  Output result = new_array(array, shape_of(array, rows, "allgatherv"));
  call(tnt_allgather, array.data(), result.data(), counts.data(), type, name.c_str(), nullptr);
  return result;
}

Output Context::alltoall(const Input& array, const std::vector<uint64_t>& splits, const std::string& name,
                         const std::optional<std::string>& dtype) {
  const auto size = static_cast<size_t>(size_);
  const std::vector<size_t> row = shape_of(array, 1, "alltoall");
  const tnt_dtype type = dtype_of(array, dtype);
  if (splits.size() != size || std::accumulate(splits.begin(), splits.end(), uint64_t{0}) != array.shape(0))
    throw nb::value_error("alltoall needs a split for each rank, with the rows of the array as their sum");
  const std::vector<uint64_t> all = allgather_numbers(splits, row, "alltoall", name);
  std::vector<uint64_t> send;
  std::vector<uint64_t> receive;
  uint64_t rows = 0;
  for (size_t rank = 0; rank < size; ++rank) {
    const uint64_t from = all[rank * (size + 1) + static_cast<size_t>(rank_)];
    rows += from;
    send.push_back(splits[rank] * elements_of(row));
    receive.push_back(from * elements_of(row));
  }
  Output result = new_array(array, shape_of(array, rows, "alltoall"));
  call(tnt_alltoall, array.data(), send.data(), result.data(), receive.data(), type, name.c_str(), nullptr);
  return result;
}

}  // namespace tarantella::python
