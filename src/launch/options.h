#pragma once
// The command line: tarantella [options] -- script.py arguments...
//
// Parsed by glibc's argp. A library with more (CLI11: exclusive options, values from variables, sub-commands) would
// have to bring its headers to machines without root, and no Python package has them. Argp says neither which word it
// refused nor why, so options.cpp does. Sub-commands have options of their own, in Python: see subcommands.h.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// More ranks than this on one machine is taken for a slip of the finger.
constexpr int kMostRanks = 4096;

/// A million seconds: eleven days.
constexpr int kMostGraceSeconds = 1000000;

enum class Action { kRun, kDryRun, kHelp, kVersion };

struct Options {
  Action action = Action::kRun;
  std::optional<int> ranks;
  bool no_gpu = false;
  std::optional<std::string> log_level;  ///< DEBUG, INFO, WARNING or ERROR
  bool log_on_all_devices = false;
  bool output_on_all_devices = false;
  std::optional<std::string> fusion_threshold_kb;  ///< a whole number >= 0
  std::optional<double> grace_seconds;             ///< from 0 to kMostGraceSeconds
  std::string script;
  std::vector<std::string> arguments;  ///< the script's own, untouched

  /// stderr of every rank is shown, not only of the master.
  bool shows_all_errors() const { return output_on_all_devices || log_on_all_devices; }
  bool shows_warnings() const { return log_level != "ERROR"; }
};

/// The log level that `word` names in any case, in capitals; none if it names none.
std::optional<std::string> log_level_named(const std::string& word);

/// Reads argv up to the script; everything behind that is the script's. On a mistake: kInvalidArgument and
/// one line that names it. Prints nothing, checks no file. Not thread-safe (argp).
Result<Options> parse_options(int argc, char** argv);

/// Prints the help text on stdout.
void print_help();

}  // namespace tarantella::launch
