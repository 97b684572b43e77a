// The blocking allreduce on the caller's thread.
//     tarantella FILE SIZES RANK JOB

#include "tarantella/tarantella.h"

#include "loop.h"

namespace {

void check(tnt_code code) {
  if (code != TNT_OK) bench::fail(tnt_last_error());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) bench::fail("usage: tarantella FILE SIZES RANK JOB");
  int rank = std::atoi(argv[3]);
  bench::Loop loop(argv[1], argv[2], rank);
  tnt_options options{.rank = rank,
                      .size = bench::kRanks,
                      .job = argv[4],
                      .meet_timeout = 60,
                      .stuck_timeout = 60,
                      .failure_delay = 1,
                      .warn_every = 60,
                      .nodes = nullptr,
                      .transport = nullptr,
                      .first_host = nullptr};
  tnt_context* context = nullptr;
  check(tnt_context_create(&options, &context));
  loop.measure("tarantella", loop.private_buffer(), [&](float* data, size_t count) {
    check(tnt_allreduce(context, data, data, count, TNT_FLOAT32, TNT_SUM, "", nullptr, nullptr, nullptr));
  });
  tnt_context_destroy(context);
}
