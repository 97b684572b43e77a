#include "launch/options.h"

#include <argp.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/number.h"
#include "launch/environment.h"
#include "launch/option_table.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

/// The state of parse_one(), which argp passes as a void pointer.
struct Parse {
  Options options;
  std::string mistake;
  int next = 1;               ///< the first word after those parsed so far: the one that getopt refuses
  bool cleans = false;        ///< --cleanup was given
  std::string other;          ///< an option that does not go with it; empty: none was given
  bool in_variables = false;  ///< the last word was a NAME=VALUE of -x, which more may follow
};

error_t fail(Parse& parse, std::string mistake) {
  if (parse.mistake.empty()) parse.mistake = std::move(mistake);
  return EINVAL;
}

error_t set_count(Parse& parse, const char* option, const char* word, std::optional<int>& count) {
  int ranks = 0;
  if (!to_number(word, ranks) || ranks < 1 || ranks > kMostRanks) {
    return fail(parse, text("option '", option, "' needs a whole number from 1 to ", kMostRanks, ", not '",
                            word, "'"));
  }
  count = ranks;
  return 0;
}

error_t set_log_level(Parse& parse, const char* word) {
  parse.options.log_level = log_level_named(word);
  if (!parse.options.log_level) {
    return fail(parse, text("option '--log-level' needs DEBUG, INFO, WARNING or ERROR, not '", word, "'"));
  }
  return 0;
}

error_t set_size(Parse& parse, const char* option, const char* unit, const char* word,
                 std::optional<std::string>& size) {
  int number = 0;
  if (!to_number(word, number) || number < 0) {
    return fail(
        parse, text("option '", option, "' needs a whole number of ", unit, ", 0 or more, not '", word, "'"));
  }
  size = std::to_string(number);
  return 0;
}

error_t set_grace(Parse& parse, const char* word) {
  char* end = nullptr;
  const double seconds = std::strtod(word, &end);
  if (end == word || *end != '\0' || !(seconds >= 0 && seconds <= kMostGraceSeconds)) {
    return fail(parse, text("option '--grace-seconds' needs a number of seconds from 0 to ",
                            kMostGraceSeconds, ", not '", word, "'"));
  }
  parse.options.grace_seconds = seconds;
  return 0;
}

error_t set_timeout(Parse& parse, const char* option, const char* word, std::optional<std::string>& timeout) {
  char* end = nullptr;
  const double seconds = std::strtod(word, &end);
  if (end == word || *end != '\0' || !(seconds > 0))
    return fail(parse, text("option '", option, "' needs a number of seconds above 0, not '", word, "'"));
  timeout = word;
  return 0;
}

error_t set_path(Parse& parse, const char* option, const char* what, const char* word,
                 std::optional<std::string>& path) {
  if (*word == '\0') return fail(parse, text("option '", option, "' needs the name of a ", what, ", not ''"));
  path = word;
  return 0;
}

bool is_name(std::string_view word) {
  const auto may_stand = [](unsigned char letter) { return std::isalnum(letter) != 0 || letter == '_'; };
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) == 0 &&
         std::all_of(word.begin(), word.end(), may_stand);
}

bool is_variable(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && is_name(word.substr(0, equals));
}

error_t set_variable(Parse& parse, const std::string& word) {
  if (!is_variable(word)) {
    return fail(parse, text("option '-x' needs NAME=VALUE, not '", word, "'"));
  }
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  if (is_of_the_job(name)) {
    return fail(parse, text("option '-x' cannot set ", name, ", which the launcher sets for each rank"));
  }
  parse.options.variables.insert_or_assign(name, word.substr(equals + 1));
  parse.in_variables = true;
  return 0;
}

error_t take_word(Parse& parse, const char* word, argp_state* state) {
  const bool is_behind_dashes = state->quoted > 0 && state->next > state->quoted;
  if (parse.in_variables && !is_behind_dashes && is_variable(word)) return set_variable(parse, word);
  parse.options.script = word;
  parse.options.arguments.assign(state->argv + state->next, state->argv + state->argc);
  state->next = state->argc;
  return 0;
}

error_t take(Parse& parse, int key, const char* word, argp_state* state) {
  Options& options = parse.options;
  if (key != ARGP_KEY_ARG) parse.in_variables = false;
  parse.cleans |= key == kKeyCleanup;
  if (parse.other.empty() && key != kKeyCleanup && key != kKeyForce) parse.other = name_of(key);
  switch (key) {
    case kKeyRanks:
      return set_count(parse, "-n", word, options.ranks);
    case kKeyRanksPerNode:
      return set_count(parse, "--n-per-node", word, options.ranks_per_node);
    case kKeyHostfile:
      return set_path(parse, "--hostfile", "file", word, options.hostfile);
    case kKeyLogLevel:
      return set_log_level(parse, word);
    case kKeyFusionThreshold:
      return set_size(parse, "--fusion-threshold", "KB", word, options.fusion_threshold_kb);
    case kKeyGatherLimit:
      return set_size(parse, "--gather-limit", "MiB", word, options.gather_limit_mib);
    case kKeyGrace:
      return set_grace(parse, word);
    case kKeyStallTimeout:
      return set_timeout(parse, "--stall-timeout", word, options.stall_timeout);
    case kKeyStartTimeout:
      return set_timeout(parse, "--start-timeout", word, options.start_timeout);
    case kKeyTimeline:
      return set_path(parse, "--timeline", "file", word, options.timeline);
    case kKeyLogDir:
      return set_path(parse, "--log-dir", "folder", word, options.log_dir);
    case kKeyVariable:
      return set_variable(parse, word);
    case kKeyInterpreter:
      options.interpreter = word;
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
      return take_word(parse, word, state);
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

error_t parse_one(int key, char* word, argp_state* state) {
  Parse& parse = *static_cast<Parse*>(state->input);
  if (key == ARGP_KEY_ERROR) {
    return parse.mistake.empty() ? fail(parse, refusal(state->argv[parse.next])) : 0;
  }
  const error_t error = take(parse, key, word, state);
  if (error == 0) parse.next = state->next;
  return error;
}

/// What is wrong with options that are each right; empty if nothing is.
std::string contradiction(const Parse& parse) {
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

std::optional<std::string> log_level_named(const std::string& word) {
  std::string level(word);
  std::transform(level.begin(), level.end(), level.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  const bool known = level == "DEBUG" || level == "INFO" || level == "WARNING" || level == "ERROR";
  return known ? std::optional(level) : std::nullopt;
}

Result<Options> parse_options(int argc, char** argv) {
  Parse parse;
  if (argc > 1) parse.options.words.assign(argv + 1, argv + argc);
  const error_t error = argp_parse(
      &kArgp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP | ARGP_NO_ERRS | ARGP_NO_EXIT, nullptr, &parse);
  Options& options = parse.options;
  if (options.action == Action::kHelp || options.action == Action::kVersion) return std::move(options);
  if (error != 0 || !parse.mistake.empty()) {
    return Status(Code::kInvalidArgument, printable(parse.mistake.empty() ? text(kUsage) : parse.mistake));
  }
  const std::string mistake = contradiction(parse);
  if (!mistake.empty()) return Status(Code::kInvalidArgument, mistake);
  return std::move(options);
}

}  // namespace tarantella::launch
