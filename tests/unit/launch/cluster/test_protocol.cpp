#include <gtest/gtest.h>

#include "launch/cluster/protocol.h"

namespace tarantella::launch {
namespace {

TEST(Message, ArrivesWholeFromBytesInAnyPieces) {
  const std::string bytes = frame(Message::Kind::kOutput, "line\n") + frame(Message::Kind::kEnd, "");
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    MessageReader reader;
    std::vector<Message> all;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      for (Message& message : reader.add(bytes.substr(at, piece))) all.push_back(std::move(message));
    }
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].kind, Message::Kind::kOutput);
    EXPECT_EQ(all[0].content, "line\n");
    EXPECT_EQ(all[1].kind, Message::Kind::kEnd);
    EXPECT_FALSE(reader.broken());
  }
}

TEST(Message, NothingIsReadBehindAMalformedFrame) {
  for (const std::string& head :
       {std::string("\x63\0\0\0\0\0\0\0", 8), std::string("\0\0\0\0\xff\xff\xff\xff", 8)}) {
    MessageReader reader;
    EXPECT_TRUE(reader.add(head + frame(Message::Kind::kEnd, "")).empty());
    EXPECT_TRUE(reader.broken());
    EXPECT_TRUE(reader.add(frame(Message::Kind::kEnd, "")).empty());
  }
}

Options all_options() {
  return {.action = Action::kDryRun,
          .ranks = 3,
          .ranks_per_node = 4,
          .hostfile = "hosts",
          .no_gpu = true,
          .all_gpus = true,
          .pin_to_socket = true,
          .pin_memory_to_socket = true,
          .variables = {{"A", "b\nc"}, {"B", ""}},
          .interpreter = "",
          .log_level = "INFO",
          .log_on_all_devices = true,
          .output_on_all_devices = true,
          .log_dir = "logs",
          .fusion_threshold_kb = "1",
          .gather_limit_mib = "2",
          .stall_timeout = "1e9",
          .start_timeout = "5",
          .max_restarts = "6",
          .restart_on = "host",
          .min_hosts = 7,
          .host_timeout = "8",
          .grace_seconds = 0.1,
          .timeline = "t.json",
          .force = true,
          .this_host = true,
          .script = "train.py",
          .command_line = {},
          .arguments = {"-n", ""}};
}

TEST(Message, AnOrderComesBackWithAllOptions) {
  const JobSpec spec{.job_id = "id",
                     .mpi_library = "mpi-abi:/lib",
                     .folder = "/folder with blanks",
                     .command = {"/python", {"/python", "-u", "train.py"}},
                     .heeds_user_signals = true,
                     .explicit_count = true,
                     .assignments = {{"a", 0, 2}, {"b", 2, 1}},
                     .options = all_options(),
                     .environment = {{"PATH"}, {{"A", "b\nc"}}}};
  const auto found = decode_job_spec({Message::Kind::kJob, encode(spec)});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->job_id, "id");
  EXPECT_EQ(found->folder, "/folder with blanks");
  EXPECT_TRUE(found->heeds_user_signals);
  EXPECT_TRUE(found->explicit_count);
  EXPECT_EQ(found->assignments, spec.assignments);
  EXPECT_EQ(found->command.program, spec.command.program);
  EXPECT_EQ(found->command.argv, spec.command.argv);
  EXPECT_EQ(found->options, spec.options);
  EXPECT_EQ(found->environment, spec.environment);
}

TEST(Message, TheHelloOfAnotherVersionIsReadAsFarAsItIsKnown) {
  const std::string other = encode(Hello{"0.1", "h", 3});
  for (const std::string& more : {std::string(), std::string("anything")}) {
    const auto hello = decode_hello({Message::Kind::kHello, other + more});
    ASSERT_TRUE(hello.has_value());
    EXPECT_EQ(hello->version, "0.1");
    EXPECT_EQ(hello->index, 3);
  }
}

TEST(Message, ContentsComeBack) {
  const auto hello =
      decode_hello({Message::Kind::kHello, encode(Hello{TARANTELLA_VERSION, "h", 3, {"mac"}})});
  EXPECT_EQ(hello->index, 3);
  EXPECT_EQ(hello->variable_macs, std::vector<std::string>{"mac"});
  const auto result =
      decode_result({Message::Kind::kResult, encode(JobResult{.code = 137, .message = "w\n"})});
  EXPECT_EQ(result->code, 137);
  EXPECT_EQ(result->message, "w\n");
  const auto event = decode_signal({Message::Kind::kSignal, encode(Signals::Event{15, true})});
  EXPECT_TRUE(event->from_terminal);
  const std::vector<std::string> warnings{"no GPU", ""};
  EXPECT_EQ(decode_warnings({Message::Kind::kReady, encode(warnings)}), warnings);
  EXPECT_EQ(decode_states({Message::Kind::kRankStatus, encode(std::vector{0, 1, 139})}),
            (std::vector{0, 1, 139}));
  const auto time = decode_time({Message::Kind::kTimeReply, encode(Time{3, int64_t{1} << 40})});
  EXPECT_EQ(time->query, 3);
  EXPECT_EQ(time->clock, int64_t{1} << 40);
  const auto clock =
      decode_clock({Message::Kind::kClock, encode(timeline::ClockDrift({1, -2, 3}, {4, 5, 6}))});
  EXPECT_EQ(clock->start().by, -2);
  EXPECT_EQ(clock->end().within, 6);
  const auto records =
      decode_records({Message::Kind::kRecords, encode(Records{1, 2, std::string("\0r", 2)})});
  EXPECT_EQ(records->rank, 1);
  EXPECT_EQ(records->made, 2);
  EXPECT_EQ(records->bytes, std::string("\0r", 2));
}

TEST(Message, CutContentsAreRefused) {
  const std::string whole = encode(
      JobSpec{"id", "t", "/", {"p", {}}, false, false, false, {{"a", 0, 2}}, all_options(), {{"A"}, {}}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_job_spec({Message::Kind::kJob, whole.substr(0, size)}).has_value());
  }
  EXPECT_FALSE(decode_job_spec({Message::Kind::kJob, whole + "x"}).has_value());
  EXPECT_FALSE(decode_job_spec({Message::Kind::kStart, whole}).has_value());
}

TEST(Message, TimesThatNoClockShowsAreRefused) {
  const timeline::ClockOffset never{INT64_MAX, 0, 0};
  EXPECT_FALSE(decode_clock({Message::Kind::kClock, encode(timeline::ClockDrift(never, never))}).has_value());
  EXPECT_FALSE(decode_time({Message::Kind::kTimeReply, encode(Time{0, INT64_MIN})}).has_value());
  EXPECT_FALSE(decode_records({Message::Kind::kRecords, encode(Records{0, -1, ""})}).has_value());
}

}  // namespace
}  // namespace tarantella::launch
