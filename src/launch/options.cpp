#include "launch/options.h"

#include <argp.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "launch/nearest.h"
#include "launch/say.h"
#include "launch/subcommands.h"

namespace tarantella::launch {
namespace {

enum Key {
  kKeyRanks = 'n',
  kKeyHelp = 'h',
  kKeyNoGpu = 0x100,
  kKeyLogLevel,
  kKeyLogOnAll,
  kKeyOutputOnAll,
  kKeyFusionThreshold,
  kKeyGrace,
  kKeyTimeline,
  kKeyDryRun,
  kKeyVersion,
};

constexpr char kUsage[] = "usage: tarantella [options] -- script.py [arguments]";
// Options of Python, for a hint.
constexpr const char* kOfPython[] = {"-m", "-c", "-u", "-O", "-W", "-X"};

const argp_option kOptions[] = {
    {"n", kKeyRanks, "N", 0, "Number of ranks (default: one per GPU; 1 without GPUs)", 1},
    {"no-gpu", kKeyNoGpu, nullptr, 0, "Use no GPU (default: one GPU per rank if there are enough)", 1},
    {"no-gpus", kKeyNoGpu, nullptr, OPTION_ALIAS, nullptr, 1},
    {"fusion-threshold", kKeyFusionThreshold, "KB", 0,
     "Largest bucket of gradients reduced together, in KB (default: 1024); 0: each gradient alone", 1},
    {"grace-seconds", kKeyGrace, "S", 0,
     "Seconds that ranks have to end after a signal, until SIGKILL (default: 30; 1.5 after Ctrl-C)", 1},
    {"log-level", kKeyLogLevel, "LEVEL", 0,
     "Show messages from this level up: DEBUG, INFO, WARNING (default) or ERROR", 2},
    {"log-on-all-devices", kKeyLogOnAll, nullptr, 0,
     "Show stderr of all ranks, each line marked with its rank (default: only rank 0)", 2},
    {"output-on-all-devices", kKeyOutputOnAll, nullptr, 0,
     "Show stdout and stderr of all ranks, each line marked with its rank (default: only rank 0)", 2},
    {"timeline", kKeyTimeline, "FILE", 0, "Write to FILE what all ranks do when, for https://ui.perfetto.dev",
     2},
    {"dry-run", kKeyDryRun, nullptr, 0, "Print cores, environment and command of each rank, and exit", 3},
    {"version", kKeyVersion, nullptr, 0, "Print the version and exit", 3},
    {"help", kKeyHelp, nullptr, 0, "Print this text and exit", 3},
    {nullptr, 0, nullptr, 0, nullptr, 0}};

/// The state of parse_one(), which argp passes as a void pointer.
struct Parse {
  Options options;
  std::string mistake;
  int next = 1;  ///< the first word after those parsed so far: the one that getopt refuses
};

bool to_number(std::string_view word, int& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

error_t fail(Parse& parse, std::string mistake) {
  if (parse.mistake.empty()) parse.mistake = std::move(mistake);
  return EINVAL;
}

error_t set_ranks(Parse& parse, const char* word) {
  int ranks = 0;
  if (!to_number(word, ranks) || ranks < 1 || ranks > kMostRanks) {
    return fail(parse, text("option '-n' needs a whole number from 1 to ", kMostRanks, ", not '", word, "'"));
  }
  parse.options.ranks = ranks;
  return 0;
}

error_t set_log_level(Parse& parse, const char* word) {
  parse.options.log_level = log_level_named(word);
  if (!parse.options.log_level) {
    return fail(parse, text("option '--log-level' needs DEBUG, INFO, WARNING or ERROR, not '", word, "'"));
  }
  return 0;
}

error_t set_fusion_threshold(Parse& parse, const char* word) {
  int kilobytes = 0;
  if (!to_number(word, kilobytes) || kilobytes < 0) {
    return fail(parse,
                text("option '--fusion-threshold' needs a whole number of KB, 0 or more, not '", word, "'"));
  }
  parse.options.fusion_threshold_kb = std::to_string(kilobytes);
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

error_t set_timeline(Parse& parse, const char* word) {
  if (*word == '\0') return fail(parse, "option '--timeline' needs the name of a file, not ''");
  parse.options.timeline = word;
  return 0;
}

const argp_option* option_named(const std::string& name) {
  for (const argp_option* option = kOptions; option->name != nullptr; ++option) {
    if (name == std::string("--") + option->name ||
        (option->key < 0x80 && name == text("-", char(option->key)))) {
      return option;
    }
  }
  return nullptr;
}

/// The error message for an option that getopt refuses.
std::string refusal(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (const argp_option* option = option_named(name)) {
    return text("option '", name, option->arg != nullptr ? "' needs a value" : "' takes no value");
  }
  std::vector<std::string> known;
  for (const argp_option* option = kOptions; option->name != nullptr; ++option) {
    known.push_back(std::string("--") + option->name);
  }
  const std::string guess = nearest(name, known);
  if (!guess.empty()) return text("unknown option '", name, "'; did you mean '", guess, "'? ", kUsage);
  for (const std::string_view python : kOfPython) {
    if (!name.starts_with("--") && name.starts_with(python)) {
      return text("unknown option '", name, "'; put options of Python after '--': tarantella -n 2 -- ", name,
                  " …");
    }
  }
  return text("unknown option '", name, "'; 'tarantella --help' lists them; ", kUsage);
}

error_t take(Parse& parse, int key, const char* word, argp_state* state) {
  Options& options = parse.options;
  switch (key) {
    case kKeyRanks:
      return set_ranks(parse, word);
    case kKeyLogLevel:
      return set_log_level(parse, word);
    case kKeyFusionThreshold:
      return set_fusion_threshold(parse, word);
    case kKeyGrace:
      return set_grace(parse, word);
    case kKeyTimeline:
      return set_timeline(parse, word);
    case kKeyNoGpu:
      options.no_gpu = true;
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
    case kKeyHelp:
    case kKeyVersion:
      options.action = key == kKeyHelp ? Action::kHelp : Action::kVersion;
      return ECANCELED;  // what follows is not looked at
    case ARGP_KEY_ARG:
      options.script = word;
      options.arguments.assign(state->argv + state->next, state->argv + state->argc);
      state->next = state->argc;
      return 0;
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

constexpr char kSynopsis[] = "-- SCRIPT [ARGUMENT...]\n-- -m MODULE [ARGUMENT...]";
const argp kArgp = {kOptions, parse_one, kSynopsis, nullptr, nullptr, nullptr, nullptr};

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
  const error_t error = argp_parse(
      &kArgp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP | ARGP_NO_ERRS | ARGP_NO_EXIT, nullptr, &parse);
  Options& options = parse.options;
  if (options.action == Action::kHelp || options.action == Action::kVersion) return std::move(options);
  if (error != 0 || !parse.mistake.empty()) {
    return Status(Code::kInvalidArgument, printable(parse.mistake.empty() ? text(kUsage) : parse.mistake));
  }
  const bool needs_script = options.action == Action::kRun || options.action == Action::kDryRun;
  if (needs_script && options.script.empty()) {
    return Status(Code::kInvalidArgument, text("no script given; ", kUsage));
  }
  return std::move(options);
}

void print_help() {
  std::string about =
      "Trains a Keras model on several processes (ranks) of this machine.\v"
      "Example: tarantella -n 4 -- model.py --batch_size=64\n\nCommands (each has its own --help):";
  for (const Subcommand& each : kSubcommands) {
    if (each.module != nullptr) about += text("\n  tarantella ", each.name, "  ", each.summary);
  }
  // No note that "-n" takes what "--n" takes.
  ::setenv("ARGP_HELP_FMT", "no-dup-args-note,opt-doc-col=31", 0);
  argp with_text = kArgp;
  with_text.doc = about.c_str();
  char name[] = "tarantella";
  argp_help(&with_text, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
  std::fflush(stdout);
}

}  // namespace tarantella::launch
