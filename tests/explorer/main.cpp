// Runs every scenario under new schedules until the time is up or one fails. Prints the seed of the first round, and
// after a failure the command that repeats it. Exit status: 0 without a failure, 1 with one, 2 for a bad option.
// Usage: explorer [--seed N] [--seconds N] [--rounds N] [--scenario NAME]

#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "explorer/fibers.h"
#include "explorer/scenarios.h"

namespace {

using tarantella::Scenario;

struct Options {
  uint64_t seed = std::random_device()();
  double seconds = 25;
  uint64_t rounds = UINT64_MAX;
  std::string scenario;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    const char* value = i + 1 < count ? arguments[i + 1] : "";
    if (name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--rounds") {
      options.rounds = std::strtoull(value, nullptr, 10);
    } else if (name == "--scenario") {
      options.scenario = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      std::exit(2);
    }
  }
  return options;
}

double elapsed() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parse(count, arguments);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 28);  // keep the memory of a round for the next one
  ::mallopt(M_TRIM_THRESHOLD, 1 << 28);
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  uint64_t rounds = 0;
  uint64_t points = 0;
  for (; rounds < options.rounds && elapsed() < options.seconds; ++rounds) {
    const uint64_t seed = options.seed + rounds;
    for (const Scenario& scenario : tarantella::scenarios()) {
      if (!options.scenario.empty() && options.scenario != scenario.name) continue;
      const auto outcome = explorer::run(seed, false, scenario.play);
      points += outcome.points;
      if (outcome.error.empty()) continue;
      std::printf("%s\n", explorer::run(seed, true, scenario.play).error.c_str());
      std::printf("found in round %llu, after %.1f s. Repeat: %s --scenario %s --rounds 1 --seed %llu\n",
                  static_cast<unsigned long long>(rounds + 1), elapsed(), arguments[0], scenario.name.c_str(),
                  static_cast<unsigned long long>(seed));
      return 1;
    }
  }
  if (points == 0) {
    std::printf("there is no scenario '%s', or no round to play it\n", options.scenario.c_str());
    return 2;
  }
  std::printf("%llu rounds, %llu points in %.1f s: nothing found\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(points), elapsed());
  return 0;
}
