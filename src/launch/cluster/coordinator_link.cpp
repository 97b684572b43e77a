#include "launch/cluster/coordinator_link.h"

#include <csignal>
#include <utility>

#include "base/host.h"
#include "base/status.h"

namespace tarantella::launch {
namespace {

constexpr Duration kHeartbeatInterval = 1s;

}  // namespace

void CoordinatorLink::put(bool is_err, std::string_view data) {
  connection_.send(is_err ? Message::Kind::kError : Message::Kind::kOutput, data);
}

std::string CoordinatorLink::rank_suffix() const { return text("@", host_name()); }

void CoordinatorLink::watch(Poller& poller, std::function<void()> on_instruction) {
  connection_.watch(poller, std::move(on_instruction));
}

std::vector<Frontend::Instruction> CoordinatorLink::instructions() {
  std::vector<Instruction> instructions;
  for (const Message& message : connection_.read()) {
    if (const auto event = decode_signal(message))
      instructions.push_back({.kind = Instruction::Kind::kSignal, .signal = *event});
    if (auto states = decode_states(message)) {
      instructions.push_back({.kind = Instruction::Kind::kRankStatus, .states = *std::move(states)});
    }
    if (message.kind == Message::Kind::kEnd) instructions.push_back({.kind = Instruction::Kind::kEnd});
  }
  return instructions;
}

int CoordinatorLink::heartbeat_interval_ms() const { return static_cast<int>(kHeartbeatInterval / 1ms); }

void CoordinatorLink::heartbeat() {
  if (Clock::now() - last_heartbeat_ >= kHeartbeatInterval) {
    last_heartbeat_ = Clock::now();
    connection_.send(Message::Kind::kHeartbeat);
  }
  connection_.check();
}

std::optional<std::string> CoordinatorLink::lost_by_signal(int number) const {
  if (number != SIGHUP) return std::nullopt;
  return text("the process that started the launcher on ", host_name(), " has ended; the ranks were stopped");
}

void CoordinatorLink::report_progress() { connection_.send(Message::Kind::kProgress); }

void CoordinatorLink::send_rank_status(const std::vector<int>& states) {
  connection_.send(Message::Kind::kRankStatus, encode(states));
}

}  // namespace tarantella::launch
