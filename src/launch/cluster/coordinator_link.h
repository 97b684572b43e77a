#pragma once
// The coordinator, as the ranks of a host see it.

#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/cluster/connection.h"
#include "launch/output/frontend.h"

namespace tarantella::launch {

/// Output of the ranks goes through the connection, and messages of the coordinator become instructions.
class CoordinatorLink : public Frontend {
 public:
  /// `connection` must outlive it.
  explicit CoordinatorLink(Connection& connection) : connection_(connection) {}

  void put(bool is_err, std::string_view data) override;
  bool full(bool) const override { return connection_.full(); }
  bool idle() const override { return connection_.idle(); }
  bool shares_stdio() const override { return false; }
  std::string rank_suffix() const override;
  void watch(Poller& poller, std::function<void()> on_instruction) override;
  std::vector<Instruction> instructions() override;
  int heartbeat_interval_ms() const override;
  void heartbeat() override;
  bool lost() const override { return connection_.closed(); }
  std::optional<std::string> lost_by_signal(int number) const override;
  void send_rank_status(const std::vector<int>& states) override;
  void report_progress() override;
  int finish(int code, const std::string&, Signals&, bool) override {
    return code;
  }  // the agent sends the result

 private:
  Connection& connection_;
  Clock::time_point last_heartbeat_{};
};

}  // namespace tarantella::launch
