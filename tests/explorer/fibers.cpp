#include "explorer/fibers.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "explorer/trace.h"

namespace explorer {
namespace {

constexpr size_t kStack = 256 * 1024;
constexpr uint64_t kMostPoints = 1'000'000;  // of one run; one with more does not end
constexpr uint64_t kMostIdle = 10'000'000;   // looks that find nothing new, likewise
constexpr Time kYield = std::chrono::microseconds(20);
constexpr Time kLook = std::chrono::microseconds(1);  // at the clock
constexpr uint64_t kTop = uint64_t{1} << 32;

struct Fiber {
  enum class State { kReady, kWaits, kEnded };

  int number = 0;
  std::string name;
  std::function<void()> body;
  State state = State::kReady;
  int64_t priority = 0;
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  // of a wait
  const void* on = nullptr;
  Time deadline{};
  bool own = false;  ///< a delay of the scenario itself
  bool notified = false;
  Where where;
  std::optional<std::set<uintptr_t>> lines;  ///< loaded from, while they are counted
  // of the last load
  const void* address = nullptr;
  uint64_t value = 0;
};

class Run {
 public:
  Run(uint64_t seed, bool trace) : random_(seed), traces_(trace) {
    // Most bugs need few switches at the right moments (PCT, Burckhardt et al. 2010); some runs switch often.
    if (below(4) == 0) {
      walks_ = uint64_t{4} << below(8);
    } else {
      const uint64_t length = uint64_t{16} << below(12);
      for (uint64_t changes = below(5); changes > 0; --changes) changes_.push_back(below(length));
      std::sort(changes_.begin(), changes_.end());
    }
    patience_ = uint64_t{1} << (3 * below(3));
  }

  Outcome go(const std::function<void()>& body);

  uint64_t below(uint64_t limit) { return random_() % limit; }
  void allow(Time time) { allowed_ = time; }
  Time now() { return now_ += kLook; }
  int current() const { return current_->number; }
  std::string name_of(const Where& where) const { return current_->name + " " + place(where); }

  int start(std::string name, std::function<void()> body) {
    auto fiber = std::make_unique<Fiber>();
    fiber->number = static_cast<int>(fibers_.size()) + 1;
    fiber->name = std::move(name);
    fiber->body = std::move(body);
    fiber->priority = static_cast<int64_t>(below(kTop));
    fiber->stack = take_stack();
    ::getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = kStack;
    fiber->context.uc_link = nullptr;
    ::makecontext(&fiber->context, &Run::enter, 0);
    fibers_.push_back(std::move(fiber));
    more_ready_ = true;
    return static_cast<int>(fibers_.size());
  }

  void join(int number, const Where& where) {
    const Fiber& other = *fibers_[static_cast<size_t>(number) - 1];
    point();
    while (other.state != Fiber::State::kEnded) wait(&other, Time::max(), where, false);
  }

  void point() {
    current_->address = nullptr;
    step();
  }

  void point_of_load(const void* address, uint64_t value) {
    if (current_->lines) current_->lines->insert(reinterpret_cast<uintptr_t>(address) / 64);
    if (!more_ready_ && current_->address == address && current_->value == value) {
      if (++idle_ > kMostIdle) fail("livelock: more than ten million looks");
      return;
    }
    step();
    current_->address = address;
    current_->value = value;
  }

  void count_lines() { current_->lines.emplace(); }
  size_t lines() { return std::exchange(current_->lines, std::nullopt)->size(); }

  void note(const char* operation, const void* address, uint64_t value, const Where& where) {
    if (traces_) trace_.add({&current_->name, operation, address, value, where});
  }

  void yield() {
    now_ += kYield;
    if (++idle_ > kMostIdle) fail("livelock: more than ten million looks");
    if (below(patience_) == 0) current_->priority = --lowest_;
    reschedule();
  }

  bool wait(const void* on, Time at_most, const Where& where, bool own) {
    note(own ? "sleep" : "wait", on, 0, where);
    Fiber& self = *current_;
    self.on = on;
    self.deadline = at_most > Time::max() - now_ ? Time::max() : now_ + at_most;
    self.own = own;
    self.notified = false;
    self.where = where;
    self.state = Fiber::State::kWaits;
    reschedule();
    return self.notified;
  }

  void notify(const void* on, bool all) {
    for (;;) {
      Fiber* first = nullptr;
      for (const auto& fiber : fibers_) {
        if (fiber->state != Fiber::State::kWaits || fiber->on != on || fiber->own) continue;
        if (first == nullptr || fiber->priority > first->priority) first = fiber.get();
      }
      if (first == nullptr) break;
      first->notified = true;
      first->state = Fiber::State::kReady;
      more_ready_ = true;
      if (!all) break;
    }
  }

  void check(bool ok, const std::string& what) {
    if (!ok) fail(what);
  }

 private:
  static void enter();

  std::unique_ptr<std::byte[]> take_stack() {
    if (free_.empty()) return std::unique_ptr<std::byte[]>(new std::byte[kStack]);
    auto stack = std::move(free_.back());
    free_.pop_back();
    return stack;
  }

  void step() {
    const uint64_t number = points_++;
    if (number > kMostPoints) fail("livelock: more than a million points");
    if (walks_ != 0) {
      if (below(walks_) == 0) return reschedule(static_cast<int64_t>(below(kTop)));
    } else if (next_change_ != changes_.size() && changes_[next_change_] <= number) {
      while (next_change_ != changes_.size() && changes_[next_change_] <= number) ++next_change_;
      return reschedule(--lowest_);
    }
    if (more_ready_) reschedule();
  }

  void reschedule(int64_t priority) {
    current_->priority = priority;
    reschedule();
  }

  /// Switches to the fiber of the highest priority.
  void reschedule() {
    more_ready_ = false;
    Fiber* next = best();
    if (next == current_) return;
    Fiber& self = *current_;
    current_ = next;
    ::swapcontext(&self.context, &next->context);
  }

  Fiber* best() {
    Fiber* best = nullptr;
    for (const auto& fiber : fibers_) {
      if (fiber->state == Fiber::State::kReady && (best == nullptr || fiber->priority > best->priority))
        best = fiber.get();
    }
    return best != nullptr ? best : first_to_time_out();
  }

  Fiber* first_to_time_out() {
    Fiber* first = nullptr;
    for (const auto& fiber : fibers_) {
      if (fiber->state == Fiber::State::kWaits && (first == nullptr || fiber->deadline < first->deadline))
        first = fiber.get();
    }
    if (first->deadline == Time::max()) fail("deadlock: no fiber can run");
    const Time passed = std::max(first->deadline - now_, Time::zero());
    if (!first->own) {
      slept_ += passed;
      if (slept_ > allowed_)
        fail("lost wake-up: no fiber can run until a time-out ends the sleep of " + first->name);
    }
    now_ += passed;
    first->state = Fiber::State::kReady;
    return first;
  }

  [[noreturn]] void fail(const std::string& what) {
    error_ = what + "\n";
    for (const auto& fiber : fibers_) {
      if (fiber->state == Fiber::State::kEnded) continue;
      error_ += "  " + fiber->name;
      if (fiber->state == Fiber::State::kReady) {
        error_ += " runs\n";
        continue;
      }
      error_ += " waits at " + place(fiber->where);
      if (fiber->deadline != Time::max())
        error_ += ", for " + std::to_string((fiber->deadline - now_).count() / 1'000'000) + " ms more";
      error_ += "\n";
    }
    error_ += trace_.describe();
    ::setcontext(&outside_);
    std::abort();
  }

  std::mt19937_64 random_;
  const bool traces_;
  uint64_t walks_ = 0;  ///< one point in so many changes a priority; 0: the points in changes_ do
  std::vector<uint64_t> changes_;
  size_t next_change_ = 0;
  uint64_t patience_;  ///< one yield in so many gives way
  int64_t lowest_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  ucontext_t outside_{};
  bool more_ready_ = false;  ///< a fiber has become ready since the last switch
  Time now_{};
  Time slept_{};
  Time allowed_{};
  uint64_t points_ = 0;
  uint64_t idle_ = 0;
  Trace trace_;
  std::string error_;

  static inline std::vector<std::unique_ptr<std::byte[]>> free_;
};

Run* the_run = nullptr;

void Run::enter() {
  Run& run = *the_run;
  run.current_->body();
  run.current_->body = nullptr;
  run.current_->state = Fiber::State::kEnded;
  const bool over = std::all_of(run.fibers_.begin(), run.fibers_.end(),
                                [](const auto& fiber) { return fiber->state == Fiber::State::kEnded; });
  if (over) ::setcontext(&run.outside_);
  run.notify(run.current_, true);
  run.reschedule();
  std::abort();  // unreachable: this fiber has ended
}

Outcome Run::go(const std::function<void()>& body) {
  the_run = this;
  start("first", body);
  current_ = fibers_[0].get();
  ::swapcontext(&outside_, &current_->context);
  the_run = nullptr;
  if (error_.empty()) {
    for (const auto& fiber : fibers_) free_.push_back(std::move(fiber->stack));
  } else {
    for (auto& fiber : fibers_) (void)fiber.release();  // objects on its stack still refer to it
  }
  return {error_, points_};
}

}  // namespace

Outcome run(uint64_t seed, bool trace, const std::function<void()>& body) {
  return Run(seed, trace).go(body);
}

uint64_t random(uint64_t below) { return the_run->below(below); }
void allow(Time time) { the_run->allow(time); }
void check(bool ok, const std::string& what) { the_run->check(ok, what); }
int start(std::string name, std::function<void()> body) {
  return the_run->start(std::move(name), std::move(body));
}
std::string name_of(Where where) { return the_run->name_of(where); }
int current() { return the_run->current(); }
void join(int fiber, Where where) { the_run->join(fiber, where); }
void point() { the_run->point(); }
void note(const char* operation, const void* address, uint64_t value, Where where) {
  the_run->note(operation, address, value, where);
}
void point_of_load(const void* address, uint64_t value) { the_run->point_of_load(address, value); }
void count_lines() { the_run->count_lines(); }
size_t lines() { return the_run->lines(); }
void yield() { the_run->yield(); }
bool wait(const void* on, Time at_most, Where where) { return the_run->wait(on, at_most, where, false); }
void notify(const void* on, bool all) { the_run->notify(on, all); }
void sleep(Time time) { (void)the_run->wait(nullptr, time, Where::current(), true); }
Time now() { return the_run->now(); }

}  // namespace explorer
