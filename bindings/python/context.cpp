#include "context.h"

#include <chrono>
#include <thread>
#include <utility>

namespace nb = nanobind;

namespace tarantella::python {

Context::Context(int rank, int size, int local_rank, int local_size, const std::string& job, double timeout,
                 double meet_timeout, double failure_delay, double warn_every, double stall_timeout,
                 const std::string& nodes, const std::string& transport, const std::string& first_host)
    : rank_(rank), size_(size), local_rank_(local_rank), local_size_(local_size) {
  const tnt_options options{
      rank,          size,       job.c_str(),   meet_timeout,      timeout,           stall_timeout,
      failure_delay, warn_every, nodes.c_str(), transport.c_str(), first_host.c_str()};
  checked([&] { return tnt_context_create(&options, &context_); });
}

Context::Context(tnt_context* context, const Context& parent)
    : context_(context),
      rank_(tnt_context_rank(context)),
      size_(tnt_context_size(context)),
      local_rank_(parent.local_rank_),
      local_size_(parent.local_size_) {}

std::unique_ptr<Context> Context::group(const std::vector<int>& ranks) {
  tnt_context* made = nullptr;
  call(tnt_context_create_group, ranks.data(), ranks.size(), &made);
  return made == nullptr ? nullptr : std::make_unique<Context>(made, *this);
}

uint32_t Context::wait_notification(int rank, const std::string& name) {
  uint32_t result = 0;
  call(tnt_wait_notification, rank, name.c_str(), &result);
  return result;
}

std::optional<uint32_t> Context::find_notification(int rank, const std::string& name) {
  int found = 0;
  uint32_t result = 0;
  call(tnt_find_notification, rank, name.c_str(), &found, &result);
  return found != 0 ? std::optional(result) : std::nullopt;
}

bool Context::await_location_query() {
  const Counted counted(calls_);
  const nb::gil_scoped_release unlocked;
  return tnt_await_location_query(context_, &questions_) == TNT_OK;
}

void Context::close() {
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

}  // namespace tarantella::python
