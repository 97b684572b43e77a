// The sum over hosts on the caller's thread, and by a plan as in training.   tarantella ... -- hosts FILE SIZES ROW

#include <map>

#include "loop.h"
#include "tarantella/tarantella.h"

namespace {

void check(tnt_code code) {
  if (code != TNT_OK) bench::fail(tnt_last_error());
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) bench::fail(std::string(name) + " is not set: start this with `tarantella`");
  return value;
}

/// The memory stays, so machines may exchange the values where they are.
void let_go(void*) {}

/// A plan for one tensor of so many floats, made when it is first needed.
tnt_plan plan_of(tnt_context* context, size_t count) {
  static std::map<size_t, tnt_plan> plans;
  const auto [found, is_new] = plans.try_emplace(count);
  if (is_new) {
    const int64_t shape = static_cast<int64_t>(count);
    const tnt_tensor tensor{.name = "gradient", .dtype = TNT_FLOAT32, .shape = &shape, .dimensions = 1};
    constexpr size_t kThreshold = size_t{1} << 20;  // the default of TNT_FUSION_THRESHOLD
    check(tnt_plan_create(context, "bench", &tensor, 1, kThreshold, TNT_HOST, 0, TNT_CHECK_STEPS_ON_NODE,
                          &found->second));
  }
  return found->second;
}

/// Sums by a plan. The sums are read where they are, as the optimizer does in training.
const float* sum_by_plan(tnt_plan plan, const float* data, size_t count) {
  static struct {
    std::atomic<bool> is;
    tnt_code code;
    const void* sums;
  } done;
  const auto set = [](void*, tnt_code code, const char*, const void* sums) {
    done.code = code;
    done.sums = sums;
    done.is.store(true);
    done.is.notify_one();
  };
  done.is.store(false);
  check(tnt_plan_submit(plan, 0, data, count, TNT_FLOAT32, 0, nullptr, set, let_go, nullptr));
  done.is.wait(false);
  if (done.code != TNT_OK) bench::fail("a plan has failed");
  return static_cast<const float*>(done.sums);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) bench::fail("usage: hosts FILE SIZES ROW");
  const int rank = std::atoi(variable("TNT_RANK"));
  bench::Loop loop(argv[1], argv[2], rank);
  const tnt_options options{.rank = rank,
                            .size = bench::kRanks,
                            .job = variable("TNT_JOB_ID"),
                            .meet_timeout = 60,
                            .stuck_timeout = 60,
                            .failure_delay = 1,
                            .warn_every = 60,
                            .nodes = variable("TNT_NODES"),
                            .transport = variable("TNT_TRANSPORT")};
  tnt_context* context = nullptr;
  check(tnt_context_create(&options, &context));
  const std::string row = argv[3];
  loop.measure(row.c_str(), loop.private_buffer(), [&](float* data, size_t count) {
    check(tnt_allreduce(context, data, data, count, TNT_FLOAT32, TNT_SUM, "", nullptr, let_go, nullptr));
  });
  loop.measure((row + ", gradients").c_str(), loop.private_buffer(),
               [&](float* data, size_t count) { return sum_by_plan(plan_of(context, count), data, count); });
  tnt_context_destroy(context);
}
