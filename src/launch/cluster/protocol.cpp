#include "launch/cluster/protocol.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "launch/cluster/packing.h"

namespace tarantella::launch {
namespace {

constexpr size_t kHead = 8;
constexpr int kLastKind = static_cast<int>(Message::Kind::kSnapshotEnd);

// Beyond all clocks; sums of some such times do not overflow.
constexpr int64_t kLatest = INT64_MAX / 8;

bool is_time(int64_t time) { return time > -kLatest && time < kLatest; }

template <typename Value>
std::string packed(const Value& value) {
  Packer pack;
  pack(value);
  return pack.take();
}

/// The content of a message of one of `kinds`.
template <typename Value>
std::optional<Value> unpacked(const Message& message, std::initializer_list<Message::Kind> kinds) {
  if (std::find(kinds.begin(), kinds.end(), message.kind) == kinds.end()) return std::nullopt;
  Unpacker pack(message.content);
  std::optional<Value> value(std::in_place);
  pack(*value);
  return pack.ok() ? std::move(value) : std::nullopt;
}

}  // namespace

template <typename Pack, Is<Hello> Value>
void fields(Pack& pack, Value& hello) {
  pack(hello.version, hello.host, hello.index);
  if (hello.version == TARANTELLA_VERSION) return pack(hello.variable_macs);
  if constexpr (std::is_same_v<Pack, Unpacker>) pack.skip_rest();
}

template <typename Pack, Is<Command> Value>
void fields(Pack& pack, Value& command) {
  pack(command.program, command.argv);
}

template <typename Pack, Is<HostAssignment> Value>
void fields(Pack& pack, Value& assignment) {
  pack(assignment.host, assignment.first_rank, assignment.ranks);
  pack.require(assignment.first_rank >= 0 && assignment.ranks >= 1 && assignment.ranks <= kMostRanks);
}

template <typename Pack, Is<EnvironmentChanges> Value>
void fields(Pack& pack, Value& changes) {
  pack(changes.kept, changes.set);
}

template <typename Pack, Is<Options> Value>
void fields(Pack& pack, Value& options) {
  pack(options.action, options.ranks, options.ranks_per_node, options.hostfile, options.no_gpu,
       options.all_gpus, options.pin_to_socket, options.pin_memory_to_socket, options.variables,
       options.interpreter, options.log_level, options.log_on_all_devices, options.output_on_all_devices,
       options.log_dir, options.fusion_threshold_kb, options.gather_limit_mib, options.stall_timeout,
       options.start_timeout, options.max_restarts, options.restart_on, options.min_hosts,
       options.host_timeout, options.grace_seconds, options.timeline, options.force, options.this_host,
       options.script, options.arguments);
  pack.require(options.action >= Action::kRun && options.action <= Action::kVersion);
}

template <typename Pack, Is<JobSpec> Value>
void fields(Pack& pack, Value& spec) {
  pack(spec.job_id, spec.mpi_library, spec.folder, spec.command, spec.heeds_user_signals, spec.explicit_count,
       spec.keeps_snapshots, spec.assignments, spec.options, spec.environment);
}

template <typename Pack, Is<JobResult> Value>
void fields(Pack& pack, Value& result) {
  pack(result.code, result.signal, result.message, result.failure, result.cause);
  pack.require(result.failure >= FailureKind::kNone && result.failure <= FailureKind::kHost);
}

template <typename Pack, Is<Signals::Event> Value>
void fields(Pack& pack, Value& event) {
  pack(event.number, event.from_terminal);
  pack.require(event.number > 0);
}

template <typename Pack, Is<Time> Value>
void fields(Pack& pack, Value& time) {
  pack(time.query, time.clock);
  pack.require(is_time(time.clock));
}

template <typename Pack, Is<Records> Value>
void fields(Pack& pack, Value& records) {
  pack(records.rank, records.made, records.bytes);
  pack.require(records.rank >= 0 && records.made >= 0 && is_time(records.made));
}

std::string frame(Message::Kind kind, std::string_view content) {
  std::string bytes;
  bytes.reserve(kHead + content.size());
  put_number(bytes, static_cast<size_t>(kind));
  put_number(bytes, content.size());
  bytes += content;
  return bytes;
}

std::vector<Message> MessageReader::add(std::string_view data) {
  std::vector<Message> messages;
  if (broken_) return messages;
  pending_ += data;
  size_t at = 0;
  while (pending_.size() - at >= kHead) {
    const size_t kind = number_at(pending_, at), size = number_at(pending_, at + 4);
    broken_ = kind > static_cast<size_t>(kLastKind) || size > kLongest;
    if (broken_ || pending_.size() - at - kHead < size) break;
    messages.push_back({static_cast<Message::Kind>(kind), pending_.substr(at + kHead, size)});
    at += kHead + size;
  }
  pending_.erase(0, broken_ ? std::string::npos : at);
  return messages;
}

using Kind = Message::Kind;

std::string encode(const Hello& hello) { return packed(hello); }
std::optional<Hello> decode_hello(const Message& message) { return unpacked<Hello>(message, {Kind::kHello}); }

std::string encode(const JobSpec& spec) { return packed(spec); }
std::optional<JobSpec> decode_job_spec(const Message& message) {
  return unpacked<JobSpec>(message, {Kind::kJob});
}

std::string encode(const JobResult& result) { return packed(result); }
std::optional<JobResult> decode_result(const Message& message) {
  return unpacked<JobResult>(message, {Kind::kResult, Kind::kRefused});
}

std::string encode(const Signals::Event& event) { return packed(event); }
std::optional<Signals::Event> decode_signal(const Message& message) {
  return unpacked<Signals::Event>(message, {Kind::kSignal});
}

std::string encode(const std::vector<std::string>& warnings) { return packed(warnings); }
std::optional<std::vector<std::string>> decode_warnings(const Message& message) {
  return unpacked<std::vector<std::string>>(message, {Kind::kReady});
}

std::string encode(const std::vector<int>& states) { return packed(states); }
std::optional<std::vector<int>> decode_states(const Message& message) {
  return unpacked<std::vector<int>>(message, {Kind::kRankStatus});
}

std::string encode(const Time& time) { return packed(time); }
std::optional<Time> decode_time(const Message& message) {
  return unpacked<Time>(message, {Kind::kTimeReply, Kind::kTimeQuery});
}

std::string encode(const timeline::ClockDrift& clock) {
  const timeline::ClockOffset start = clock.start(), end = clock.end();
  return packed(std::vector{start.time, start.by, start.within, end.time, end.by, end.within});
}

std::optional<timeline::ClockDrift> decode_clock(const Message& message) {
  const auto times = unpacked<std::vector<int64_t>>(message, {Kind::kClock});
  if (!times || times->size() != 6 || !std::all_of(times->begin(), times->end(), is_time))
    return std::nullopt;
  const std::vector<int64_t>& t = *times;
  return timeline::ClockDrift({t[0], t[1], t[2]}, {t[3], t[4], t[5]});
}

std::string encode(uint64_t number) { return packed(number); }
std::optional<uint64_t> decode_number(const Message& message) {
  return unpacked<uint64_t>(message, {Kind::kSnapshotNumber});
}

std::string encode(const Records& records) { return packed(records); }
std::optional<Records> decode_records(const Message& message) {
  return unpacked<Records>(message, {Kind::kRecords});
}

}  // namespace tarantella::launch
