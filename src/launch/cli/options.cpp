#include "launch/cli/options.h"

#include <argp.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/number.h"
#include "launch/cli/job_variables.h"
#include "launch/cli/option_table.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// The state of parse_one(), which argp passes as a void pointer.
struct ParseState {
  Options options;
  std::string error_message;
  int next = 1;               ///< the first argument after those parsed so far: the one that getopt refuses
  bool cleans = false;        ///< --cleanup was given
  std::string other;          ///< an option that does not go with it; empty: none was given
  bool in_variables = false;  ///< the last argument was a NAME=VALUE of -x, which more may follow
};

error_t fail(ParseState& parse, std::string error_message) {
  if (parse.error_message.empty()) parse.error_message = std::move(error_message);
  return EINVAL;
}

error_t set_count(ParseState& parse, const char* option, const char* argument, std::optional<int>& count) {
  int ranks = 0;
  if (!to_number(argument, ranks) || ranks < 1 || ranks > kMostRanks) {
    return fail(parse, text("option '", option, "' needs a whole number from 1 to ", kMostRanks, ", not '",
                            argument, "'"));
  }
  count = ranks;
  return 0;
}

error_t set_log_level(ParseState& parse, const char* argument) {
  parse.options.log_level = log_level_named(argument);
  if (!parse.options.log_level) {
    return fail(parse,
                text("option '--log-level' needs DEBUG, INFO, WARNING or ERROR, not '", argument, "'"));
  }
  return 0;
}

error_t set_size(ParseState& parse, const char* option, const char* unit, const char* argument,
                 std::optional<std::string>& size) {
  int number = 0;
  if (!to_number(argument, number) || number < 0) {
    return fail(parse, text("option '", option, "' needs a whole number of ", unit, ", 0 or more, not '",
                            argument, "'"));
  }
  size = std::to_string(number);
  return 0;
}

error_t set_grace(ParseState& parse, const char* argument) {
  char* end = nullptr;
  const double seconds = std::strtod(argument, &end);
  if (end == argument || *end != '\0' || !(seconds >= 0 && seconds <= kMostGraceSeconds)) {
    return fail(parse, text("option '--grace-seconds' needs a number of seconds from 0 to ",
                            kMostGraceSeconds, ", not '", argument, "'"));
  }
  parse.options.grace_seconds = seconds;
  return 0;
}

error_t set_timeout(ParseState& parse, const char* option, const char* argument,
                    std::optional<std::string>& timeout) {
  char* end = nullptr;
  const double seconds = std::strtod(argument, &end);
  if (end == argument || *end != '\0' || !(seconds > 0))
    return fail(parse, text("option '", option, "' needs a number of seconds above 0, not '", argument, "'"));
  timeout = argument;
  return 0;
}

error_t set_path(ParseState& parse, const char* option, const char* what, const char* argument,
                 std::optional<std::string>& path) {
  if (*argument == '\0')
    return fail(parse, text("option '", option, "' needs the name of a ", what, ", not ''"));
  path = argument;
  return 0;
}

bool is_name(std::string_view argument) {
  const auto may_stand = [](unsigned char letter) { return std::isalnum(letter) != 0 || letter == '_'; };
  return !argument.empty() && std::isdigit(static_cast<unsigned char>(argument.front())) == 0 &&
         std::all_of(argument.begin(), argument.end(), may_stand);
}

bool is_variable(std::string_view argument) {
  const size_t equals = argument.find('=');
  return equals != std::string_view::npos && is_name(argument.substr(0, equals));
}

error_t set_variable(ParseState& parse, const std::string& argument) {
  if (!is_variable(argument)) {
    return fail(parse, text("option '-x' needs NAME=VALUE, not '", argument, "'"));
  }
  const size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  if (is_job_variable(name)) {
    return fail(parse, text("option '-x' cannot set ", name, ", which the launcher sets for each rank"));
  }
  parse.options.variables.insert_or_assign(name, argument.substr(equals + 1));
  parse.in_variables = true;
  return 0;
}

error_t take_argument(ParseState& parse, const char* argument, argp_state* state) {
  const bool is_after_dashes = state->quoted > 0 && state->next > state->quoted;
  if (parse.in_variables && !is_after_dashes && is_variable(argument)) return set_variable(parse, argument);
  parse.options.script = argument;
  parse.options.arguments.assign(state->argv + state->next, state->argv + state->argc);
  state->next = state->argc;
  return 0;
}

error_t take(ParseState& parse, int key, const char* argument, argp_state* state) {
  Options& options = parse.options;
  if (key != ARGP_KEY_ARG) parse.in_variables = false;
  parse.cleans |= key == kKeyCleanup;
  if (parse.other.empty() && key != kKeyCleanup && key != kKeyForce) parse.other = name_of(key);
  switch (key) {
    case kKeyRanks:
      return set_count(parse, "-n", argument, options.ranks);
    case kKeyRanksPerNode:
      return set_count(parse, "--n-per-node", argument, options.ranks_per_node);
    case kKeyHostfile:
      return set_path(parse, "--hostfile", "file", argument, options.hostfile);
    case kKeyLogLevel:
      return set_log_level(parse, argument);
    case kKeyFusionThreshold:
      return set_size(parse, "--fusion-threshold", "KB", argument, options.fusion_threshold_kb);
    case kKeyGatherLimit:
      return set_size(parse, "--gather-limit", "MiB", argument, options.gather_limit_mib);
    case kKeyGrace:
      return set_grace(parse, argument);
    case kKeyStallTimeout:
      return set_timeout(parse, "--stall-timeout", argument, options.stall_timeout);
    case kKeyStartTimeout:
      return set_timeout(parse, "--start-timeout", argument, options.start_timeout);
    case kKeyMaxRestarts:
      return set_size(parse, "--max-restarts", "restarts", argument, options.max_restarts);
    case kKeyRestartOn:
      options.restart_on = argument;
      return 0;
    case kKeyMinHosts:
      return set_count(parse, "--min-hosts", argument, options.min_hosts);
    case kKeyHostTimeout:
      return set_timeout(parse, "--host-timeout", argument, options.host_timeout);
    case kKeyTimeline:
      return set_path(parse, "--timeline", "file", argument, options.timeline);
    case kKeyLogDir:
      return set_path(parse, "--log-dir", "folder", argument, options.log_dir);
    case kKeyVariable:
      return set_variable(parse, argument);
    case kKeyInterpreter:
      options.interpreter = argument;
      return 0;
    case kKeyAllGpus:
      options.all_gpus = true;
      return 0;
    case kKeyNoGpu:
      options.no_gpu = true;
      return 0;
    case kKeyPinToSocket:
      options.pin_to_socket = true;
      return 0;
    case kKeyPinMemory:
      options.pin_memory_to_socket = true;
      return 0;
    case kKeyLogOnAll:
      options.log_on_all_devices = true;
      return 0;
    case kKeyOutputOnAll:
      options.output_on_all_devices = true;
      return 0;
    case kKeyDryRun:
      options.action = Action::kDryRun;
      return 0;
    case kKeyCleanup:
      options.action = Action::kCleanup;
      return 0;
    case kKeyListMpis:
      options.action = Action::kListMpis;
      return 0;
    case kKeyForce:
      options.force = true;
      return 0;
    case kKeyThisHost:
      options.this_host = true;
      return 0;
    case kKeyHelp:
    case kKeyVersion:
      options.action = key == kKeyHelp ? Action::kHelp : Action::kVersion;
      return ECANCELED;  // what follows is not looked at
    case ARGP_KEY_ARG:
      return take_argument(parse, argument, state);
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

error_t parse_one(int key, char* argument, argp_state* state) {
  ParseState& parse = *static_cast<ParseState*>(state->input);
  if (key == ARGP_KEY_ERROR) {
    return parse.error_message.empty() ? fail(parse, option_error(state->argv[parse.next])) : 0;
  }
  const error_t error = take(parse, key, argument, state);
  if (error == 0) parse.next = state->next;
  return error;
}

/// What is wrong with options that contradict each other; empty if none do.
std::string contradiction(const ParseState& parse) {
  const Options& options = parse.options;
  if (options.ranks && options.ranks_per_node) {
    return "options '-n' and '--n-per-node' exclude each other: '-n' is the number of ranks of the whole job";
  }
  if (options.force && options.action != Action::kCleanup) return "option '--force' needs '--cleanup'";
  if (parse.cleans && !parse.other.empty()) {
    return text("option '", parse.other,
                "' does not go with '--cleanup', which looks at this machine only; run it on each host");
  }
  const bool needs_script = options.action == Action::kRun || options.action == Action::kDryRun;
  return needs_script && options.script.empty() ? text("no script given; ", kUsage) : "";
}

const argp kArgp = {kOptions, parse_one, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

std::optional<std::string> log_level_named(const std::string& name) {
  std::string level(name);
  std::transform(level.begin(), level.end(), level.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  const bool known = level == "DEBUG" || level == "INFO" || level == "WARNING" || level == "ERROR";
  return known ? std::optional(level) : std::nullopt;
}

Result<Options> parse_options(int argc, char** argv) {
  ParseState parse;
  if (argc > 1) parse.options.command_line.assign(argv + 1, argv + argc);
  const error_t error = argp_parse(
      &kArgp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP | ARGP_NO_ERRS | ARGP_NO_EXIT, nullptr, &parse);
  Options& options = parse.options;
  if (options.action == Action::kHelp || options.action == Action::kVersion) return std::move(options);
  if (error != 0 || !parse.error_message.empty()) {
    return Status(Code::kInvalidArgument,
                  printable(parse.error_message.empty() ? text(kUsage) : parse.error_message));
  }
  const std::string error_message = contradiction(parse);
  if (!error_message.empty()) return Status(Code::kInvalidArgument, error_message);
  return std::move(options);
}

}  // namespace tarantella::launch
