// The machine's limit: a memcpy by one thread, and two threads of one process that sum directly into both buffers.
//     limit FILE SIZES memcpy|fused

#include <cstring>
#include <string_view>
#include <thread>

#include "loop.h"

namespace {

void measure_memcpy(const char* file, const char* sizes) {
  bench::Loop loop(file, sizes, 0, 1);
  float* copy = loop.private_buffer();
  loop.measure("memcpy", loop.private_buffer(), [copy](const float* data, size_t count) {
    std::memcpy(copy, data, count * sizeof(float));
    asm volatile("" : : "r"(copy) : "memory");  // keeps the compiler from dropping the copy
  });
}

/// Each thread sums its half of the elements and stores the sums to both buffers at once.
void sum_half(float* mine, float* other, int rank, size_t count) {
  size_t middle = count / 2;
  for (size_t i = rank ? middle : 0, end = rank ? count : middle; i < end; ++i) {
    float sum = mine[i] + other[i];
    mine[i] = sum;
    other[i] = sum;
  }
}

void measure_fused(const char* file, const char* sizes) {
  bench::Arrivals arrivals{};
  float* buffers[bench::kRanks];
  auto run = [&](int rank) {
    bench::Loop loop(file, sizes, rank);
    bench::Barrier barrier(arrivals, rank, bench::kRanks);
    buffers[rank] = loop.private_buffer();
    loop.meet();
    loop.measure("limit", buffers[rank], [&](float* mine, size_t count) {
      barrier.wait();
      sum_half(mine, buffers[1 - rank], rank, count);
      barrier.wait();
    });
  };
  std::thread first(run, 0), second(run, 1);
  first.join();
  second.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) bench::fail("usage: limit FILE SIZES memcpy|fused");
  std::string_view what = argv[3];
  if (what == "memcpy")
    measure_memcpy(argv[1], argv[2]);
  else
    measure_fused(argv[1], argv[2]);
}
