#include <gtest/gtest.h>

#include "launch/cli/restart_options.h"

namespace tarantella::launch {
namespace {

Options given(std::optional<std::string> max_restarts, std::optional<std::string> kinds = {},
              std::optional<int> hosts = {}, std::optional<std::string> timeout = {}) {
  Options options;
  options.max_restarts = std::move(max_restarts);
  options.restart_on = std::move(kinds);
  options.min_hosts = hosts;
  options.host_timeout = std::move(timeout);
  return options;
}

TEST(RestartOptions, AreOffUnlessTheyAreAskedFor) {
  EXPECT_EQ(restart_options({}, 1).value().max_restarts, 0);
  EXPECT_EQ(restart_options(given("0"), 1).value().max_restarts, 0);
}

TEST(RestartOptions, AreRead) {
  const RestartOptions usual = restart_options(given("3"), 2).value();
  EXPECT_EQ(usual.max_restarts, 3);
  EXPECT_EQ(usual.kinds, (std::set{FailureKind::kKilled, FailureKind::kHost}));
  EXPECT_EQ(usual.min_hosts, std::nullopt);
  EXPECT_EQ(usual.host_timeout, 600s);
  const RestartOptions chosen = restart_options(given("1", "exception,host", 2, "1.5"), 2).value();
  EXPECT_EQ(chosen.kinds, (std::set{FailureKind::kException, FailureKind::kHost}));
  EXPECT_EQ(chosen.min_hosts, 2);
  EXPECT_EQ(chosen.host_timeout, 1500ms);
}

TEST(RestartOptions, ThatContradictOneAnotherAreRefused) {
  const struct {
    Options options;
    std::string error;
  } cases[] = {
      {given("many"), "TNT_MAX_RESTARTS needs a whole number of restarts, 0 or more, not 'many'"},
      {given("-1"), "TNT_MAX_RESTARTS needs a whole number of restarts, 0 or more, not '-1'"},
      {given({}, "host"), "option '--restart-on' needs '--max-restarts', the number of restarts allowed"},
      {given("0", {}, 1), "option '--min-hosts' needs '--max-restarts', the number of restarts allowed"},
      {given({}, {}, {}, "9"),
       "option '--host-timeout' needs '--max-restarts', the number of restarts allowed"},
      {given("1", "kill"),
       "option '--restart-on' takes killed, host and exception, separated by commas, not 'kill'"},
      {given("1", "killed, host"),
       "option '--restart-on' takes killed, host and exception, separated by commas, not ' host'"},
      {given("1", ""), "option '--restart-on' needs one of killed, host and exception"},
      {given("1", "killed", 1),
       "option '--min-hosts' is about lost hosts, which '--restart-on killed' leaves out"},
      {given("1", {}, 3), "option '--min-hosts' asks for 3 hosts, but the job has 2"},
  };
  for (const auto& each : cases) {
    const Result<RestartOptions> result = restart_options(each.options, 2);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(result.status().message(), each.error);
  }
}

}  // namespace
}  // namespace tarantella::launch
