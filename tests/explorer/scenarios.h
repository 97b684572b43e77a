#pragma once
// Small jobs of two or three ranks; each uses one protocol of the core. They take their random choices from
// explorer::random(), and fail the run on a wrong result. The run itself finds lost wake-ups.

#include <string>
#include <vector>

namespace tarantella {

struct Scenario {
  std::string name;
  void (*play)();
};

const std::vector<Scenario>& scenarios();

}  // namespace tarantella
