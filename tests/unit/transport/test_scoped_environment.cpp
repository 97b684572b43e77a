#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "transport/mpi/scoped_environment.h"

namespace tarantella::transport {
namespace {

TEST(ScopedEnvironment, GivesVariablesTheirValuesBack) {
  (void)setenv("TNT_TEST_OLD", "old", 1);
  (void)setenv("TNT_TEST_GONE", "gone", 1);
  {
    const ScopedEnvironment environment(
        {{"TNT_TEST_OLD", "new"}, {"TNT_TEST_GONE", std::nullopt}, {"TNT_TEST_NEW", "1=2"}});
    EXPECT_STREQ(std::getenv("TNT_TEST_OLD"), "new");
    EXPECT_EQ(std::getenv("TNT_TEST_GONE"), nullptr);
    EXPECT_STREQ(std::getenv("TNT_TEST_NEW"), "1=2");
    (void)setenv("TNT_TEST_OF_MPI", "stays", 1);
  }
  EXPECT_STREQ(std::getenv("TNT_TEST_OLD"), "old");
  EXPECT_STREQ(std::getenv("TNT_TEST_GONE"), "gone");
  EXPECT_EQ(std::getenv("TNT_TEST_NEW"), nullptr);
  EXPECT_STREQ(std::getenv("TNT_TEST_OF_MPI"), "stays");
  for (const char* each : {"TNT_TEST_OLD", "TNT_TEST_GONE", "TNT_TEST_OF_MPI"}) (void)unsetenv(each);
}

// As TensorFlow's threads do. With setenv() AddressSanitizer finds that they read what was freed.
TEST(ScopedEnvironment, LetsOtherThreadsReadTheEnvironmentMeanwhile) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "reads without a lock, as getenv() does, are races to ThreadSanitizer";
#endif
  (void)setenv("TNT_TEST_CONSTANT", "always", 1);
  std::atomic<bool> over{false};
  size_t looks = 0, missed = 0;
  std::thread reads([&] {
    for (; !over.load(); ++looks) {
      const char* found = nullptr;
      for (char** each = environ; *each != nullptr; ++each) {
        if (std::strncmp(*each, "TNT_TEST_CONSTANT=", 18) == 0) found = *each;
      }
      if (found == nullptr || std::strcmp(found + 18, "always") != 0) ++missed;
    }
  });
  Variables changes;
  for (int i = 0; i < 20; ++i) changes["TNT_TEST_" + std::to_string(i)] = std::string(100, 'x');
  for (int round = 0; round < 1000; ++round) {
    const ScopedEnvironment environment(changes);
    std::this_thread::yield();
  }
  over.store(true);
  reads.join();
  EXPECT_GT(looks, 0U);
  EXPECT_EQ(missed, 0U);
  (void)unsetenv("TNT_TEST_CONSTANT");
}

}  // namespace
}  // namespace tarantella::transport
