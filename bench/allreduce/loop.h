#pragma once
// The measuring loop of all programs here, so that only the library under test differs.
//
// Each rank pins itself to its own core; ranks share cores where there are fewer. Before every timed call it writes its
// data, as a backward pass would: otherwise shared memory would stay in the cache of the rank that sums it. Then all
// ranks meet in a spinning barrier, which lies in a small file of shared memory. They also meet after the call; the
// time of the slowest rank counts.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#ifndef BENCH_RANKS
#define BENCH_RANKS 2
#endif

namespace bench {

constexpr int kRanks = BENCH_RANKS;
constexpr int kMostIterations = 2000;

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How many barriers each rank has reached, one cache line per rank.
struct Arrivals {
  struct alignas(64) Count {
    std::atomic<uint64_t> value;
  };
  Count count[kRanks];
};

class Barrier {
 public:
  Barrier(Arrivals& arrivals, int rank, int size) : arrivals_(arrivals), rank_(rank), size_(size) {}

  void wait() {
    arrivals_.count[rank_].value.store(++round_, std::memory_order_release);
    for (int rank = 0; rank < size_; ++rank)
      for (int spins = 0; arrivals_.count[rank].value.load(std::memory_order_acquire) < round_; ++spins) {
        pause();
        if (spins >= most_spins_) sched_yield();
      }
  }

 private:
  Arrivals& arrivals_;
  int rank_, size_;
  /// Enough for ranks with cores of their own, unless another process uses one.
  const int most_spins_ = sysconf(_SC_NPROCESSORS_ONLN) < size_ ? 0 : 1 << 14;
  uint64_t round_ = 0;
};

/// Layout of the shared file, which is all zeros at first.
struct Shared {
  Arrivals arrivals;
  bool wrong[kRanks];
  double microseconds[kRanks][kMostIterations];
};

inline Shared& map_shared(const char* file) {
  int descriptor = open(file, O_RDWR);
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Shared)) != 0) fail(std::string("cannot open ") + file);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) fail(std::string("cannot map ") + file);
  close(descriptor);
  return *static_cast<Shared*>(memory);
}

/// Pins this thread to the rank-th of its allowed cores; a launcher may have left it only one.
inline void pin(int rank) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int skip = rank % CPU_COUNT(&allowed), core = 0;
  while (!CPU_ISSET(core, &allowed) || skip-- > 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

/// Parses "4,16" into numbers of bytes.
inline std::vector<size_t> parse_sizes(const char* text) {
  std::vector<size_t> sizes;
  for (char* end; *text; text = *end ? end + 1 : end) {
    sizes.push_back(std::strtoul(text, &end, 10));
    if (end == text || sizes.back() % sizeof(float))
      fail("sizes are multiples of 4 with commas between them");
  }
  if (sizes.empty()) fail("no size");
  return sizes;
}

/// BENCH_ITERATIONS makes it fewer.
inline int iterations(size_t bytes) {
  const char* most = std::getenv("BENCH_ITERATIONS");
  const int usual = bytes <= 64 << 10   ? kMostIterations
                    : bytes <= 1 << 20  ? 200
                    : bytes <= 16 << 20 ? 20
                                        : 10;
  return most == nullptr ? usual : std::clamp(std::atoi(most), 1, usual);
}

template <class Work>
double microseconds(Work work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

class Loop {
 public:
  /// With `size` 1 there is no other rank to wait for.
  Loop(const char* file, const char* sizes, int rank, int size = kRanks)
      : rank_(rank),
        size_(size),
        sizes_(parse_sizes(sizes)),
        shared_(map_shared(file)),
        barrier_(shared_.arrivals, rank, size) {
    pin(rank);
  }

  size_t most_bytes() const { return *std::max_element(sizes_.begin(), sizes_.end()); }

  /// Memory for the largest size, never freed.
  float* private_buffer() const {
    size_t page = 4096, pages = (most_bytes() + page - 1) / page;
    return static_cast<float*>(std::aligned_alloc(page, pages * page));
  }

  void meet() { barrier_.wait(); }

  /// Calls allreduce(data, elements), which sums in place or returns where the sums are. Rank 0 prints one line of JSON
  /// per size.
  template <class Allreduce>
  void measure(const char* row, float* data, Allreduce allreduce) {
    for (size_t bytes : sizes_) {
      size_t count = bytes / sizeof(float);
      double pace = barrier_median();
      shared_.wrong[rank_] = !right(data, count, allreduce);
      int timed = iterations(bytes), warm_up = timed / 10 + 2;
      std::vector<double> times(timed);
      for (int i = -warm_up; i < timed; ++i) {
        std::fill_n(data, count, rank_ + 1.0f);
        meet();
        double passed = microseconds([&] { allreduce(data, count); });
        if (i >= 0) times[i] = passed;
        meet();
      }
      std::copy(times.begin(), times.end(), shared_.microseconds[rank_]);
      meet();
      if (rank_ == 0) print(row, bytes, timed, pace);
      meet();
    }
  }

 private:
  /// The current time for a signal from core to core.
  double barrier_median() {
    std::vector<double> times(201);
    for (double& time : times) time = microseconds([this] { meet(); });
    std::nth_element(times.begin(), times.begin() + 100, times.end());
    return times[100];
  }

  template <class Allreduce>
  bool right(float* data, size_t count, Allreduce allreduce) {
    for (size_t i = 0; i < count; ++i) data[i] = rank_ + 1 + i % 7;
    meet();
    const float* sums = data;
    if constexpr (std::is_void_v<decltype(allreduce(data, count))>)
      allreduce(data, count);
    else
      sums = allreduce(data, count);
    meet();
    for (size_t i = 0; i < count; ++i)
      if (sums[i] != size_ * (size_ + 1) / 2 + size_ * float(i % 7)) return false;
    return true;
  }

  void print(const char* row, size_t bytes, int timed, double pace) {
    std::vector<double> slowest(timed);
    bool wrong = false;
    for (int rank = 0; rank < size_; ++rank) {
      wrong |= shared_.wrong[rank];
      for (int i = 0; i < timed; ++i) slowest[i] = std::max(slowest[i], shared_.microseconds[rank][i]);
    }
    std::sort(slowest.begin(), slowest.end());
    std::printf(
        R"({"row": "%s", "bytes": %zu, "samples": %d, "minimum": %.3f, "median": %.3f, "maximum": %.3f, )"
        R"("barrier": %.3f, "correct": %s})"
        "\n",
        row, bytes, timed, slowest.front(), slowest[timed / 2], slowest.back(), pace,
        wrong ? "false" : "true");
    std::fflush(stdout);
  }

  int rank_, size_;
  std::vector<size_t> sizes_;
  Shared& shared_;
  Barrier barrier_;
};

}  // namespace bench
