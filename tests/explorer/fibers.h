#pragma once
// Cooperative fibers on one thread. The ready fiber with the highest priority runs; priorities and the points at which
// they change follow from a seed. The virtual clock advances a little with each look at it and each yield; apart from
// that it stands still while a fiber can run.
//
// A run fails if only time-outs can end the waits of all fibers, for longer in total than allow() permits.

#include <chrono>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

namespace explorer {

using Time = std::chrono::nanoseconds;
using Where = std::source_location;

/// The result of a run.
struct Outcome {
  std::string error;    ///< the failure and the state of each fiber; empty without a failure
  uint64_t points = 0;  ///< at which another fiber could have run
};

/// Runs `body` as the first fiber, and the fibers that it starts, until the last one ends or the run fails. A failure
/// abandons the fibers where they stand, with their memory. With `trace`, the error lists the last operations. The same
/// seed gives the same run. Not reentrant.
Outcome run(uint64_t seed, bool trace, const std::function<void()>& body);

// The following functions are called by fibers.

/// A random number below `below`, from the seed of the run.
uint64_t random(uint64_t below);
/// Permits time-outs of the code under test for `time` in total; zero at first.
void allow(Time time);
/// Fails the run unless `ok`.
void check(bool ok, const std::string& what);

/// Starts a fiber and returns its number, counted from 1.
int start(std::string name, std::function<void()> body);
/// The name of a fiber that the current one starts at `where`.
std::string name_of(Where where);
int current();
void join(int fiber, Where where);

/// To be called before an operation that other fibers can observe.
void point();
/// As point(), before a load of `value`; a spin that loads the same again is no point.
void point_of_load(const void* address, uint64_t value);
/// Starts to count the cache lines that the current fiber loads from.
void count_lines();
/// Ends that, and returns how many different ones there were.
size_t lines();
/// Adds an operation to the trace.
void note(const char* operation, const void* address, uint64_t value, Where where);
/// std::this_thread::yield(): advances the clock a little, and gives way now and then.
void yield();

/// Waits for notify(`on`); false if `at_most` has passed instead.
bool wait(const void* on, Time at_most, Where where);
/// Makes one waiting fiber, or all of them, ready. They run from the next point on.
void notify(const void* on, bool all);
/// A delay of the scenario itself, which needs no allow().
void sleep(Time time);
Time now();

}  // namespace explorer
