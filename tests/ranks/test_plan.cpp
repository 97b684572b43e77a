#include <cstring>
#include <mutex>
#include <numeric>
#include <random>

#include "completion.h"
#include "cpu_time.h"
#include "engine/plan.h"
#include "world.h"

namespace tarantella::engine {
namespace {

std::vector<TensorSpec> some_tensors() {
  return {{"a", DType::kFloat32, {100}},   {"b", DType::kFloat32, {7, 3}}, {"c", DType::kFloat64, {33}},
          {"d", DType::kInt64, {}},        {"e", DType::kFloat32, {0}},    {"f", DType::kFloat32, {5000}},
          {"g", DType::kInt32, {2, 3, 4}}, {"h", DType::kFloat32, {1}},    {"i", DType::kFloat16, {301}},
          {"j", DType::kUInt8, {5, 5}},    {"k", DType::kInt16, {99}}};
}

/// Element i of tensor t of `rank` in `step`, small enough that sums of all types are exact.
double element(int rank, int step, size_t tensor, size_t i) {
  return static_cast<double>((rank + 1) * 3 + step % 50 + static_cast<int>(tensor) * 2 +
                             static_cast<int>(i % 11));
}

template <typename T>
void fill(void* data, int rank, int step, size_t tensor, size_t count) {
  for (size_t i = 0; i < count; ++i)
    static_cast<T*>(data)[i] = static_cast<T>(element(rank, step, tensor, i));
}

/// Calls body(a value of the C++ type that `dtype` names).
template <typename Body>
auto with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::kFloat64:
      return body(double{});
    case DType::kInt32:
      return body(int32_t{});
    case DType::kInt64:
      return body(int64_t{});
    case DType::kUInt8:
      return body(uint8_t{});
    case DType::kInt16:
      return body(int16_t{});
#if defined(__FLT16_MAX__)
    case DType::kFloat16:
      return body(_Float16{});
#endif
    default:
      return body(float{});
  }
}

std::vector<std::byte> gradient(const TensorSpec& spec, int rank, int step, size_t tensor) {
  std::vector<std::byte> data(spec.count() * size_of(spec.dtype) + 1);
  with_type(spec.dtype,
            [&](auto type) { fill<decltype(type)>(data.data(), rank, step, tensor, spec.count()); });
  return data;
}

template <typename T>
bool is_sum(const void* data, int size, int step, size_t tensor, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += element(rank, step, tensor, i);
    if (static_cast<const T*>(data)[i] != static_cast<T>(static_cast<int>(sum))) return false;
  }
  return true;
}

bool is_right(const TensorSpec& spec, const void* data, int size, int step, size_t tensor) {
  return with_type(spec.dtype,
                   [&](auto type) { return is_sum<decltype(type)>(data, size, step, tensor, spec.count()); });
}

/// One step: submits all tensors in `order` and checks every sum inside its callback.
void run_step(Plan& plan, const std::vector<TensorSpec>& specs, int rank, int size, int step,
              const std::vector<size_t>& order) {
  Completion all(specs.size());
  std::vector<std::vector<std::byte>> gradients(specs.size());
  for (const size_t tensor : order) {
    auto& data = gradients[tensor];
    data = gradient(specs[tensor], rank, step, tensor);
    const Status status = plan.submit(tensor, data.data(), specs[tensor].count(), specs[tensor].dtype,
                                      [&, tensor](const Status& reported, const void* result) {
                                        if (reported.ok()) {
                                          EXPECT_TRUE(is_right(specs[tensor], result, size, step, tensor))
                                              << "tensor " << tensor << " in step " << step;
                                        }
                                        all.done(reported);
                                      });
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const Status status = all.wait();
  ASSERT_TRUE(status.ok()) << status.message();
}

std::vector<size_t> first_to_last(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

using Plans = OnRanks;

TEST_P(Plans, SumEveryTensorEveryStep) {
  const auto specs = some_tensors();
  for (const size_t threshold : {size_t{0}, size_t{300}, size_t{1} << 20}) {
    world_.run([&](Context& context) {
      const auto plan = context.add_plan("gradients", specs, threshold);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (int step = 0; step < 20; ++step) {
        run_step(*plan.value(), specs, context.group().rank(), world_.size(), step,
                 first_to_last(specs.size()));
      }
    });
  }
}

/// All gradients of a step, and pointers to them as Plan::run() takes them.
struct Whole {
  std::vector<std::vector<std::byte>> data;
  std::vector<void*> pointers;

  Whole(const std::vector<TensorSpec>& specs, int rank, int step) {
    for (size_t i = 0; i < specs.size(); ++i) data.push_back(gradient(specs[i], rank, step, i));
    for (auto& each : data) pointers.push_back(each.data());
  }
};

TEST_P(Plans, RunAsAWholeInPlace) {
  const auto specs = some_tensors();
  for (const size_t threshold : {size_t{0}, size_t{300}, size_t{1} << 20}) {
    world_.run([&](Context& context) {
      const int rank = context.group().rank();
      const auto plan = context.add_plan("gradients", specs, threshold);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (int step = 0; step < 20; ++step) {
        Whole whole(specs, rank, step);
        const Status status = plan.value()->run(whole.pointers.data(), nullptr, whole.pointers.data());
        ASSERT_TRUE(status.ok()) << status.message();
        for (size_t i = 0; i < specs.size(); ++i)
          EXPECT_TRUE(is_right(specs[i], whole.pointers[i], world_.size(), step, i)) << "tensor " << i;
      }
    });
  }
}

TEST_P(Plans, CompareNoStepWithZero) {
  const auto specs = some_tensors();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (uint32_t step = 1; step <= 4; ++step) {
      Whole whole(specs, rank, 0);
      const uint32_t number = rank == static_cast<int>(step) % world_.size() ? 0 : step;
      const Status status = plan.value()->run(whole.pointers.data(), nullptr, whole.pointers.data(), number);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
}

TEST_P(Plans, RunAsAWholeEndWhenARankGivesUp) {
  if (world_.size() < 2) GTEST_SKIP();
  const auto specs = some_tensors();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok());
    if (rank == 1) return plan.value()->abort("no gradients here");
    Whole whole(specs, rank, 0);
    const Status status = plan.value()->run(whole.pointers.data(), nullptr, whole.pointers.data());
    EXPECT_NE(status.message().find("rank 1: no gradients here"), std::string::npos) << status.message();
  });
}

TEST_P(Plans, RunAsAWholeRefuseATensorUnderWay) {
  if (world_.size() < 2) GTEST_SKIP();
  const auto specs = some_tensors();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok());
    if (rank != 0) {  // without them the tensor stays under way
      while (context.group().failure().ok()) std::this_thread::sleep_for(1ms);
      return;
    }
    Completion late(1);
    const auto data = gradient(specs[2], rank, 0, 2);
    ASSERT_TRUE(plan.value()
                    ->submit(2, data.data(), specs[2].count(), specs[2].dtype,
                             [&](const Status& status, const void*) { late.done(status); })
                    .ok());
    Whole whole(specs, rank, 0);
    const Status status = plan.value()->run(whole.pointers.data(), nullptr, whole.pointers.data());
    EXPECT_NE(status.message().find("submitted twice"), std::string::npos) << status.message();
    EXPECT_FALSE(late.wait().ok());
  });
}

TEST_P(Plans, TakeGradientsInAnyOrderHoweverLate) {
  const auto specs = some_tensors();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok());
    std::mt19937 random(static_cast<uint32_t>(rank));
    for (int step = 0; step < 100; ++step) {
      auto order = first_to_last(specs.size());
      std::shuffle(order.begin(), order.end(), random);
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      run_step(*plan.value(), specs, rank, world_.size(), step, order);
    }
  });
}

TEST_P(Plans, OfSeveralModelsRunSideBySide) {
  const auto specs = some_tensors();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto first = context.add_plan("first", specs, 0);
    const auto second = context.add_plan("second", specs, 1 << 20);
    ASSERT_TRUE(first.ok() && second.ok());
    const auto train = [&](Plan& plan) {
      for (int step = 0; step < 30; ++step) {
        run_step(plan, specs, rank, world_.size(), step, first_to_last(specs.size()));
      }
    };
    std::thread other([&] { train(*first.value()); });
    train(*second.value());
    other.join();
    context.remove_plan(first.value());
    train(*second.value());
  });
}

TEST_P(Plans, SubmitFromManyThreads) {
  const auto specs = some_tensors();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok());
    for (int step = 0; step < 10; ++step) {
      Completion all(specs.size());
      std::vector<std::vector<std::byte>> gradients(specs.size());
      std::vector<std::thread> threads;
      for (size_t tensor = 0; tensor < specs.size(); ++tensor) {
        threads.emplace_back([&, tensor] {
          auto& data = gradients[tensor];
          data = gradient(specs[tensor], rank, step, tensor);
          const Status status = plan.value()->submit(
              tensor, data.data(), specs[tensor].count(), specs[tensor].dtype,
              [&, tensor](const Status& reported, const void* result) {
                if (reported.ok()) {
                  EXPECT_TRUE(is_right(specs[tensor], result, world_.size(), step, tensor));
                }
                all.done(reported);
              });
          EXPECT_TRUE(status.ok()) << status.message();
        });
      }
      EXPECT_TRUE(all.wait().ok());
      for (auto& thread : threads) thread.join();
    }
  });
}

/// Has too little memory in the second step of a bucket.
class OutOfMemory final : public collective::BucketReduction {
 public:
  explicit OutOfMemory(std::unique_ptr<BucketReduction> of) : of_(std::move(of)) {}
  void put(size_t bucket, collective::Range range, const std::byte* values,
           const std::shared_ptr<const void>& owner) override {
    of_->put(bucket, range, values, owner);
  }
  void start(size_t bucket, uint32_t training_step) override { of_->start(bucket, training_step); }
  Advanced advance(size_t bucket) override {
    if (done_ != 0) throw std::bad_alloc();
    const Advanced advanced = of_->advance(bucket);
    if (advanced == Advanced::kDone) ++done_;
    return advanced;
  }
  std::optional<Awaited> awaited(size_t bucket) const override { return of_->awaited(bucket); }
  const std::byte* result() const override { return of_->result(); }
  std::shared_ptr<void> memory() const override { return of_->memory(); }
  void begin_polling() override { of_->begin_polling(); }
  void end_polling() override { of_->end_polling(); }

 private:
  const std::unique_ptr<BucketReduction> of_;
  int done_ = 0;
};

/// One whose last rank has such reductions.
class LastOutOfMemory final : public collective::Communicator {
 public:
  explicit LastOutOfMemory(std::unique_ptr<collective::Communicator> of)
      : Communicator(of->share_group()), of_(std::move(of)) {}
  int rank() const override { return of_->rank(); }
  int size() const override { return of_->size(); }
  int job_rank(int rank) const override { return of_->job_rank(rank); }
  Status allreduce(const void*, void*, size_t, DType, Reduction, std::string_view,
                   const std::shared_ptr<const void>&) override {
    return {};
  }
  Status reduce_scatter(const void*, void*, size_t, DType, Reduction, std::string_view) override {
    return {};
  }
  Status broadcast(void*, size_t, DType, int, std::string_view) override { return {}; }
  Status allgather(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                   std::string_view name) override {
    return of_->allgather(input, output, counts, dtype, name);
  }
  Status alltoall(const void*, std::span<const uint64_t>, void*, std::span<const uint64_t>, DType,
                  std::string_view) override {
    return {};
  }
  Status compare_call(const collective::CallSignature& call) override { return of_->compare_call(call); }
  Result<std::unique_ptr<Communicator>> split(const std::vector<int>& ranks) override {
    return of_->split(ranks);
  }
  MemoryNeed memory_for(size_t bytes) const override { return of_->memory_for(bytes); }
  Result<std::unique_ptr<collective::BucketReduction>> make_reduction(std::vector<collective::Bucket> buckets,
                                                                      const std::string& name,
                                                                      StepCheck step_check) override {
    auto made = of_->make_reduction(std::move(buckets), name, step_check);
    if (!made.ok() || rank() != size() - 1) return made;
    return std::unique_ptr<collective::BucketReduction>(new OutOfMemory(std::move(made).value()));
  }
  void notify(const std::string&, uint32_t) override {}
  Result<uint32_t> wait_notification(int, const std::string&) override { return 0u; }
  Result<std::optional<uint32_t>> find_notification(int, const std::string&) override {
    return std::optional<uint32_t>();
  }

 private:
  const std::unique_ptr<collective::Communicator> of_;
};

TEST_P(Plans, AStepForWhichARankHasNoMemoryEndsTheJobOnAll) {
  const std::vector<TensorSpec> specs = {{"a", DType::kFloat32, {8}}, {"b", DType::kFloat32, {8}}};
  world_.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    auto node = collective::NodeCommunicator::create(std::move(memory), world_.options());
    ASSERT_TRUE(node.ok()) << node.status().message();
    auto context = Context::create(std::make_unique<LastOutOfMemory>(std::move(node).value()));
    ASSERT_TRUE(context.ok()) << context.status().message();
    auto plan = context.value()->add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<float> a(8, static_cast<float>(rank)), b(8);
    const void* inputs[] = {a.data(), b.data()};
    void* outputs[] = {a.data(), b.data()};
    const Status first = plan.value()->run(inputs, nullptr, outputs);
    const Status status = first.ok() ? plan.value()->run(inputs, nullptr, outputs) : first;
    EXPECT_EQ(status.code(), Code::kSystem) << status.message();
    EXPECT_NE(status.message().find(text("rank ", world_.size() - 1, " failed in gradients: std::bad_alloc")),
              std::string::npos)
        << status.message();
  });
}

TEST_P(Plans, GiveTheSameBitsOnAllRanksInAllRunsWhoeverComesFirst) {
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {9999}}};
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  for (int last = 0; last < world_.size(); ++last) {  // a run each, in which that rank comes last
    world_.run([&](Context& context) {
      const auto plan = context.add_plan("gradients", specs, 0);
      ASSERT_TRUE(plan.ok());
      const int rank = context.group().rank();
      std::mt19937 random(static_cast<uint32_t>(rank));
      std::vector<float> data(9999);
      for (float& value : data) value = static_cast<float>(random()) * 1e-7F;
      std::vector<float> sums = data;
      std::this_thread::sleep_for(2ms * ((rank - last - 1 + world_.size()) % world_.size()));
      void* const tensors[] = {sums.data()};
      ASSERT_TRUE(plan.value()->run(tensors, nullptr, tensors).ok());
      std::this_thread::sleep_for(2ms * ((last - rank + world_.size()) % world_.size()));
      const Status status = context.call([&](collective::Communicator& comm) {
        return comm.allreduce(data.data(), data.data(), data.size(), DType::kFloat32, Reduction::kSum, "");
      });
      ASSERT_TRUE(status.ok()) << status.message();
      const std::lock_guard lock(mutex);
      results.push_back(std::move(sums));
      results.push_back(std::move(data));
    });
  }
  for (const auto& result : results) EXPECT_TRUE(result == results[0]);
}

TEST_P(Plans, CarryEmptyTensorsAlone) {
  const std::vector<TensorSpec> specs = {{"a", DType::kFloat32, {0}}, {"b", DType::kInt64, {3, 0}}};
  for (const size_t threshold : {size_t{0}, size_t{1} << 20}) {
    world_.run([&](Context& context) {
      const auto plan = context.add_plan("gradients", specs, threshold);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (int step = 0; step < 3; ++step)
        run_step(*plan.value(), specs, context.group().rank(), world_.size(), step, {1, 0});
    });
  }
}

TEST_P(Plans, OfGroupsRunAtTheSameTime) {
  const auto specs = some_tensors();
  const int size = world_.size();
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    std::unique_ptr<Context> own;
    for (const int parity : {0, 1}) {
      std::vector<int> ranks;
      for (int other = parity; other < size; other += 2) ranks.push_back(other);
      if (ranks.empty()) continue;
      auto made = context.split(ranks);
      ASSERT_TRUE(made.ok()) << made.status().message();
      if (made.value() != nullptr) own = std::move(made).value();
    }
    ASSERT_NE(own, nullptr);
    const auto plan = own->add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (int step = 0; step < 20 * (1 + rank % 2); ++step)  // a group does not wait for the other
      run_step(*plan.value(), specs, own->group().rank(), own->group().size(), step,
               first_to_last(specs.size()));
  });
}

TEST_P(Plans, GiveUpAGroupInACallbackOfAnother) {
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {10}}};
  std::vector<int> all(static_cast<size_t>(world_.size()));
  std::iota(all.begin(), all.end(), 0);
  world_.run([&](Context& context) {
    auto group = context.split(all);
    ASSERT_TRUE(group.ok()) << group.status().message();
    const auto plan = context.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const std::vector<float> data(10);
    Completion step(1);
    ASSERT_TRUE(plan.value()
                    ->submit(0, data.data(), 10, DType::kFloat32,
                             [&](const Status& status, const void*) {  // as a garbage collector may do
                               group.value().reset();
                               step.done(status);
                             })
                    .ok());
    EXPECT_TRUE(step.wait().ok());
    run_step(*plan.value(), specs, context.group().rank(), world_.size(), 2, {0});
  });
}

TEST_P(Plans, MakeNoGroupWaitForACallback) {
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {10}}};
  std::vector<int> all(static_cast<size_t>(world_.size()));
  std::iota(all.begin(), all.end(), 0);
  std::atomic<int> submitted{0};
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto caller = std::this_thread::get_id();
    const std::vector<float> data(10);
    std::atomic<bool> made{false};
    Completion step(1);
    const bool last = context.group().rank() == world_.size() - 1;
    while (last && submitted != world_.size() - 1) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(plan.value()
                    ->submit(0, data.data(), 10, DType::kFloat32,
                             [&](const Status& status, const void*) {
                               for (const Deadline limit = Deadline::after(30s);
                                    std::this_thread::get_id() != caller && !made && !limit.passed();)
                                 std::this_thread::sleep_for(1ms);
                               EXPECT_TRUE(made || std::this_thread::get_id() == caller);
                               step.done(status);
                             })
                    .ok());
    ++submitted;
    auto group = context.split(all);
    EXPECT_TRUE(group.ok()) << group.status().message();
    group.value().reset();
    made = true;
    EXPECT_TRUE(step.wait().ok());
    EXPECT_TRUE(context.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TNT_ON_RANKS(Plans, 1, 2, 3, 9);
TNT_SPINNING(Plans, 2, 3);

using PlansThatFail = OnRanks;

TEST_P(PlansThatFail, NameTheFirstTensorThatDiffers) {
  world_.run([&](Context& context) {
    auto specs = some_tensors();
    if (context.group().rank() == 1)
      specs.insert(specs.begin() + 2, {"extra/kernel", DType::kFloat32, {10, 10}});
    const auto plan = context.add_plan("model \"lenet\"", specs, 0);
    EXPECT_EQ(plan.status().code(), Code::kMismatch);
    EXPECT_NE(plan.status().message().find(
                  "rank 1 has \"extra/kernel\" float32 [10, 10] as tensor 3 of 12, rank 0 has "
                  "\"c\" float64 [33] (of 11)"),
              std::string::npos)
        << plan.status().message();
  });
}

TEST_P(PlansThatFail, RefuseAnotherThreshold) {
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", some_tensors(), context.group().rank() == 1 ? 5 : 6);
    EXPECT_EQ(plan.status().code(), Code::kMismatch);
    EXPECT_NE(plan.status().message().find("fusion threshold of 5 bytes"), std::string::npos)
        << plan.status().message();
  });
}

TEST_P(PlansThatFail, EndWhatIsUnderWayWhenARankLeaves) {
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {10}}};
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok());
    if (context.group().rank() == 1) return;
    const std::vector<float> data(10);
    Completion all(1);
    const auto submit = [&] {
      return plan.value()->submit(0, data.data(), 10, DType::kFloat32,
                                  [&](const Status& status, const void*) { all.done(status); });
    };
    ASSERT_TRUE(submit().ok());
    const Status status = all.wait();
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("step 1 of gradients, gradient of \"w\" float32 [10]: rank 1 has ended"),
              std::string::npos)
        << status.message();
    EXPECT_EQ(submit().code(), Code::kPeerLost);
  });
}

TEST_P(PlansThatFail, TellARankThatTookAnotherPath) {
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {10}}};
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok());
    Status status;
    if (context.group().rank() == 1) {  // one batch less: it is at the end of its epoch already
      status = context.call([](collective::Communicator& comm) { return comm.barrier("epoch end"); });
    } else {
      const std::vector<float> data(10);
      Completion all(1);
      ASSERT_TRUE(plan.value()
                      ->submit(0, data.data(), 10, DType::kFloat32,
                               [&](const Status& reported, const void*) { all.done(reported); })
                      .ok());
      status = all.wait();
    }
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
  });
}

TEST_P(PlansThatFail, DoNotWaitForEverForOneAnothersGradients) {
  world_.options().stuck_timeout = 4s;
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {10}}};
  world_.run([&](Context& context) {
    const auto generator = context.add_plan("generator", specs, 0);
    const auto critic = context.add_plan("critic", specs, 0);
    ASSERT_TRUE(generator.ok() && critic.ok());
    Plan& plan = context.group().rank() == 1 ? *generator.value() : *critic.value();
    const std::vector<float> data(10);
    Completion all(1);
    ASSERT_TRUE(plan.submit(0, data.data(), 10, DType::kFloat32,
                            [&](const Status& status, const void*) { all.done(status); })
                    .ok());
    const Status status = all.wait();
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("has waited for other gradients"), std::string::npos) << status.message();
  });
}

TEST_P(PlansThatFail, RefuseWhatIsNotInThePlan) {
  const std::vector<TensorSpec> specs = {{"w", DType::kFloat32, {10}}, {"v", DType::kFloat32, {10}}};
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", specs, 1 << 20);
    ASSERT_TRUE(plan.ok());
    const std::vector<float> data(10);
    const Done never = [](const Status&, const void*) { FAIL(); };
    EXPECT_EQ(plan.value()->submit(2, data.data(), 10, DType::kFloat32, never).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(plan.value()->submit(0, data.data(), 9, DType::kFloat32, never).code(), Code::kInvalidArgument);
    EXPECT_EQ(plan.value()->submit(0, data.data(), 10, DType::kInt32, never).code(), Code::kInvalidArgument);
    ASSERT_TRUE(
        plan.value()->submit(0, data.data(), 10, DType::kFloat32, [](const Status&, const void*) {}).ok());
    EXPECT_EQ(plan.value()->submit(0, data.data(), 10, DType::kFloat32, never).code(), Code::kInvalidArgument)
        << "twice";
    ASSERT_TRUE(context.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST_P(PlansThatFail, NameTheStepThatARankHasLeftOut) {
  const auto specs = some_tensors();
  const int last = world_.size() - 1;
  world_.run([&](Context& context) {
    const int rank = context.group().rank();
    const auto plan = context.add_plan("gradients", specs, 300);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const uint32_t number : {1u, 2u, 3u}) {
      if (number == 2 && rank == last) continue;
      Whole whole(specs, rank, 0);
      const Status status = plan.value()->run(whole.pointers.data(), nullptr, whole.pointers.data(), number);
      if (number == 1) {
        ASSERT_TRUE(status.ok()) << status.message();
        // no rank goes on, and ends the job, before all have the sums; it may end while others leave this call
        (void)context.call([](collective::Communicator& comm) { return comm.barrier(""); });
        continue;
      }
      EXPECT_EQ(status.code(), Code::kMismatch);
      const std::string words = text(" sums gradients of training step 2, rank ", last, " those of step 3: ");
      EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    }
  });
}

TNT_ON_RANKS(PlansThatFail, 2, 3);
TNT_SPINNING(PlansThatFail, 2);

TEST_P(PlansThatFail, TellACreationFromACall) {
  world_.run([&](Context& context) {
    if (context.group().rank() == 0) {
      const auto plan = context.add_plan("gradients", some_tensors(), 0);
      EXPECT_EQ(plan.status().code(), Code::kMismatch) << plan.status().message();
      return;
    }
    const Status status = context.call([](collective::Communicator& comm) { return comm.barrier("b"); });
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_NE(status.message().find("called barrier \"b\" while rank 0 called plan \"gradients\""),
              std::string::npos)
        << status.message();
  });
}

TEST_P(PlansThatFail, RefuseToRunWithOtherSizes) {
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", {{"w", DType::kFloat32, {10}}}, 0);
    ASSERT_TRUE(plan.ok());
    const std::vector<float> data(10);
    std::vector<float> sums(10);
    const void* const inputs[] = {data.data()};
    void* const outputs[] = {sums.data()};
    const size_t bytes[] = {context.group().rank() == 1 ? 8u : 40u};
    const Status status = plan.value()->run(inputs, bytes, outputs);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("\"w\" float32 [10] was submitted as 8 bytes"), std::string::npos)
        << status.message();
  });
}

/// A step on the thread that made the plan and a barrier on another one, as late as told.
void step_beside_barrier(Context& context, Duration step_late, Duration barrier_late, Status& step,
                         Status& barrier) {
  const auto plan = context.add_plan("gradients", {{"w", DType::kFloat32, {10}}}, 0);
  ASSERT_TRUE(plan.ok());
  std::thread beside([&] {
    std::this_thread::sleep_for(barrier_late);
    barrier = context.call([](collective::Communicator& comm) { return comm.barrier(""); });
  });
  std::this_thread::sleep_for(step_late);
  std::vector<float> data(10);
  void* const tensors[] = {data.data()};
  step = plan.value()->run(tensors, nullptr, tensors);
  beside.join();
}

using PlansBesideCalls = OnRanks;

TEST_P(PlansBesideCalls, WaitLongForOneAnotherAndGoOn) {
  const Duration late = 8 * world_.options().failure_delay;
  world_.run([&](Context& context) {
    const bool first = context.group().rank() == 0;
    Status step;
    Status barrier;
    step_beside_barrier(context, first ? 0s : late, first ? late : 0s, step, barrier);
    EXPECT_TRUE(step.ok()) << step.message();
    EXPECT_TRUE(barrier.ok()) << barrier.message();
  });
}

TEST_P(PlansBesideCalls, EndAtOnceWhereARankWaitsInTheLastPlanOfAStep) {
  world_.run([&](Context& context) {
    const auto gradients = context.add_plan("gradients", {{"w", DType::kFloat32, {10}}}, 0);
    const auto updates =
        context.add_plan("updates", {{"none", DType::kFloat32, {1}}}, 0, StepCheck::kAllNodesExclusive);
    ASSERT_TRUE(gradients.ok() && updates.ok());
    std::vector<float> data(10);
    void* const tensors[] = {data.data()};
    const bool leaves_out = context.group().rank() == 0;
    const Status status = (leaves_out ? updates : gradients).value()->run(tensors, nullptr, tensors, 1);
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_NE(status.message().find(" meanwhile; give every rank the same"), std::string::npos)
        << status.message();
  });
}

TEST_P(PlansBesideCalls, EndAfterTheTimeoutWhereNoneOfThemCanGoOn) {
  world_.options().stuck_timeout = 4s;
  world_.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", {{"w", DType::kFloat32, {10}}}, 0);
    ASSERT_TRUE(plan.ok());
    Status status;
    if (context.group().rank() == 0) {
      std::vector<float> data(10);
      void* const tensors[] = {data.data()};
      status = plan.value()->run(tensors, nullptr, tensors);
    } else {
      std::thread([&] {
        status = context.call([](collective::Communicator& comm) { return comm.barrier(""); });
      }).join();
    }
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    EXPECT_NE(status.message().find(" meanwhile; give every rank the same"), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("(limit: TNT_TIMEOUT)"), std::string::npos) << status.message();
  });
}

TNT_ON_RANKS(PlansBesideCalls, 2);

TEST(PlansOverlap, ABucketIsReducedBeforeTheLastGradientIsReady) {
  World world("shm", 2);
  const std::vector<TensorSpec> specs = {{"first", DType::kFloat32, {10}}, {"last", DType::kFloat32, {10}}};
  world.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", specs, 0);
    ASSERT_TRUE(plan.ok());
    const std::vector<float> data(10);
    Completion last(1);
    Completion first(1);
    ASSERT_TRUE(plan.value()
                    ->submit(1, data.data(), 10, DType::kFloat32,
                             [&](const Status& status, const void*) { last.done(status); })
                    .ok());
    ASSERT_TRUE(last.wait().ok());  // done while "first" is still being computed
    ASSERT_TRUE(plan.value()
                    ->submit(0, data.data(), 10, DType::kFloat32,
                             [&](const Status& status, const void*) { first.done(status); })
                    .ok());
    ASSERT_TRUE(first.wait().ok());
    ASSERT_TRUE(context.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST(WaitsOnOwnCores, SpinNoLongerThanMilliseconds) {
  World world("spinning", 3);
  constexpr Duration kLate = 500ms;
  world.run([&](Context& context) {
    const auto plan = context.add_plan("gradients", {{"a", DType::kFloat32, {10}}}, 0);
    ASSERT_TRUE(plan.ok());
    const bool is_late = context.rank() == 0;
    if (is_late) {
      EXPECT_LT(used_in(kLate), kLate / 5) << "while ranks wait for a gradient";
    }
    const std::vector<float> data(10);
    Completion step(1);
    const auto done = [&](const Status& status, const void*) { step.done(status); };
    ASSERT_TRUE(plan.value()->submit(0, data.data(), 10, DType::kFloat32, done).ok());
    ASSERT_TRUE(step.wait().ok());
    if (is_late) {
      EXPECT_LT(used_in(kLate), kLate / 5) << "while ranks wait in a call";
    }
    ASSERT_TRUE(context.call([](collective::Communicator& comm) { return comm.barrier(""); }).ok());
  });
}

TEST(PlanOnFake, WakesARankWhoseCallbackRunsInsideASubmit) {
  const std::vector<TensorSpec> specs = {
      {"large", DType::kFloat32, {64}}, {"small", DType::kFloat32, {16}}, {"later", DType::kFloat32, {16}}};
  constexpr size_t kLarge = 0, kSmall = 1, kLater = 2;
  World world("fake", 2);
  std::atomic<int> stage{0};
  world.run_memories([&](int rank, std::unique_ptr<transport::NodeMemory> memory) {
    // without a progress thread: its thread would take the steps first
    auto group = collective::NodeGroup::create(std::move(memory), world.options());
    ASSERT_TRUE(group.ok());
    auto shown = collective::NodeCommunicator::create(group.value());
    ASSERT_TRUE(shown.ok());
    auto made = Plan::create(*shown.value(), "p", specs, 64);  // "large" has buckets of its own
    ASSERT_TRUE(made.ok());
    Plan& plan = *made.value();
    const std::vector<float> ones(64, 1.0F);
    const auto submit = [&](size_t tensor, Done done) {
      ASSERT_TRUE(
          plan.submit(tensor, ones.data(), specs[tensor].count(), DType::kFloat32, std::move(done)).ok());
    };
    const auto ignore = [](const Status&, const void*) {};
    const auto wait_for = [&](int reached) {
      while (stage < reached) std::this_thread::yield();
    };
    if (rank == 0) {
      submit(kLater, ignore);
      bool woken = false;
      submit(kSmall, [&](const Status&, const void*) {
        const uint32_t before = group.value()->rank_table().wake_count();
        stage = 3;
        for (const Deadline limit = Deadline::after(30s); !woken && !limit.passed();
             std::this_thread::yield())
          woken = group.value()->rank_table().wake_count() != before;
      });
      stage = 1;
      wait_for(2);
      submit(kLarge, ignore);  // finds "small" summed
      EXPECT_GE(stage, 3);
      EXPECT_TRUE(woken) << "while the callback ran, what came for \"later\" was not said";
      stage = 4;
    } else {
      wait_for(1);
      submit(kSmall, ignore);
      stage = 2;
      wait_for(3);
      submit(kLater, ignore);
      wait_for(4);
    }
    plan.fail({Code::kPeerLost, "the end"});
  });
}

}  // namespace
}  // namespace tarantella::engine
