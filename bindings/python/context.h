#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "dtypes.h"
#include "errors.h"
#include "tarantella/tarantella.h"
#include "zero_contributions.h"

namespace tarantella::python {

using Output = nanobind::ndarray<nanobind::numpy>;
using TensorSpec = std::tuple<std::string, std::string, std::vector<int64_t>>;

class Context {
 public:
  Context(int rank, int size, int local_rank, int local_size, const std::string& job, double timeout,
          double meet_timeout, double failure_delay, double warn_every, double stall_timeout,
          const std::string& nodes, const std::string& transport, const std::string& first_host);
  /// A group of `parent`, on one machine.
  Context(tnt_context* context, const Context& parent);
  ~Context() { close(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t number() const { return tnt_context_number(context_); }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  Output allreduce(const Input& array, const std::string& name, const std::string& reduction,
                   const std::optional<std::string>& dtype);
  Output reduce_scatter(const Input& array, const std::string& name, const std::string& reduction,
                        const std::optional<std::string>& dtype);
  Output broadcast(const Input& array, int root, const std::string& name,
                   const std::optional<std::string>& dtype);
  Output allgather(const Input& array, const std::string& name, const std::optional<std::string>& dtype);
  Output allgatherv(const Input& array, const std::string& name, const std::optional<std::string>& dtype);
  Output alltoall(const Input& array, const std::vector<uint64_t>& splits, const std::string& name,
                  const std::optional<std::string>& dtype);

  /// A context of some ranks, or None if this rank is not among them.
  std::unique_ptr<Context> group(const std::vector<int>& ranks);
  void barrier() { call(tnt_barrier, ""); }
  void notify(const std::string& name, uint32_t result) { call(tnt_notify, name.c_str(), result); }
  uint32_t wait_notification(int rank, const std::string& name);
  std::optional<uint32_t> find_notification(int rank, const std::string& name);

  tnt_plan plan(const std::string& name, const std::vector<TensorSpec>& specs, size_t threshold,
                int step_check);
  /// The bucket of each tensor of the plan.
  std::vector<size_t> buckets(tnt_plan plan, size_t tensors);
  void check_finite(tnt_plan plan) {
    inside([&] { return tnt_plan_check_finite(plan); });
  }
  void release(tnt_plan plan) {
    inside([&] { return tnt_plan_release(plan); });
  }
  std::unique_ptr<ZeroContributions> begin_zero_contributions(tnt_plan plan, size_t tensors) {
    return std::make_unique<ZeroContributions>(plan, tensors);
  }
  void finish_zero_contributions(const ZeroContributions& zeros, const std::vector<uint64_t>& steps);

  void abort(const std::string& reason, int exit_code) {
    if (context_ != nullptr) call(tnt_abort, reason.c_str(), exit_code);
  }
  /// The exit code of the rank that ended the job's communication; 0 if unknown.
  int exit_code() const { return context_ == nullptr ? 0 : tnt_exit_code(context_); }
  void show_stacks(int signal, int descriptor) { call(tnt_show_stacks, signal, descriptor); }
  void end_with_job() { call(tnt_end_with_job); }

  /// Raises the first error that ended the job's communication, if there is one.
  void check() {
    if (context_ != nullptr) call(tnt_failure);
  }

  /// Blocks until another rank asks where this one is; false once the context is closed.
  bool await_location_query();
  void report_location(const std::string& place) { call(tnt_report_location, place.c_str()); }

  /// Ends the calls of other threads, and returns when these have the GIL again: the interpreter may end then.
  void close();

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

  /// The numbers of each rank and then the hash of its `row`, in rank order; the same count from each rank. Throws
  /// Mismatch if the shapes of the rows differ between ranks.
  std::vector<uint64_t> allgather_numbers(std::vector<uint64_t> numbers, const std::vector<size_t>& row,
                                          const char* operation, const std::string& name);

  template <typename Call>
  void inside(Call call) {
    const Counted counted(calls_);
    checked(call);
  }

  /// Calls a function of the C interface, for this context.
  template <typename Function, typename... Arguments>
  void call(Function function, Arguments... arguments) {
    inside([&] { return function(context_, arguments...); });
  }

  tnt_context* context_ = nullptr;
  int calls_ = 0;         ///< inside the core; guarded by the GIL
  bool closing_ = false;  ///< guarded by the GIL
  uint32_t questions_ = 0;
  const int rank_, size_, local_rank_, local_size_;
};

}  // namespace tarantella::python
