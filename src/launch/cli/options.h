#pragma once
// The command line: tarantella [options] -- script.py arguments...
//
// Parsed by glibc's argp. A library with more (CLI11: exclusive options, values from variables, sub-commands) would
// need its headers on machines without root, and no Python package has them. Argp does not say which argument it
// refuses, or why, so option_table.cpp does. Sub-commands parse their own options, in Python: see subcommands.h.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// The most ranks on one machine; a larger number is taken for a typing error.
constexpr int kMostRanks = 4096;

/// The longest grace: a million seconds, or eleven days.
constexpr int kMostGraceSeconds = 1000000;

enum class Action { kRun, kDryRun, kCleanup, kListMpis, kHelp, kVersion };

struct Options {
  Action action = Action::kRun;
  std::optional<int> ranks;
  std::optional<int> ranks_per_node;    ///< never set together with `ranks`
  std::optional<std::string> hostfile;  ///< not empty
  bool no_gpu = false;
  bool all_gpus = false;
  bool pin_to_socket = false;
  bool pin_memory_to_socket = false;
  std::map<std::string, std::string> variables;  ///< of -x; names are valid and none is the launcher's own
  std::optional<std::string> interpreter;        ///< runs the script; empty: the script is a program
  std::optional<std::string> log_level;          ///< DEBUG, INFO, WARNING or ERROR
  bool log_on_all_devices = false;
  bool output_on_all_devices = false;
  std::optional<std::string> log_dir;              ///< the folder for a file a rank; not empty
  std::optional<std::string> fusion_threshold_kb;  ///< a whole number >= 0
  std::optional<std::string> gather_limit_mib;     ///< a whole number >= 0
  std::optional<std::string> stall_timeout;        ///< seconds, above 0
  std::optional<std::string> start_timeout;        ///< seconds, above 0
  std::optional<std::string> max_restarts;         ///< a whole number >= 0, unless it is of the environment
  std::optional<std::string> restart_on;           ///< see restart_options.h
  std::optional<int> min_hosts;                    ///< above 0
  std::optional<std::string> host_timeout;         ///< seconds, above 0
  std::optional<double> grace_seconds;             ///< from 0 to kMostGraceSeconds
  std::optional<std::string> timeline;             ///< the file to write; not empty
  bool force = false;                              ///< of kCleanup: do not ask
  bool this_host = false;                          ///< refuse ranks on other hosts
  std::string script;                              ///< may be empty for kCleanup
  std::vector<std::string> command_line;           ///< the whole command line, without the launcher's name
  std::vector<std::string> arguments;              ///< of the script, unchanged

  bool operator==(const Options&) const = default;

  /// Whether stderr of every rank is shown, not only that of rank 0.
  bool shows_all_errors() const { return output_on_all_devices || log_on_all_devices; }
  bool shows_warnings() const { return log_level != "ERROR"; }
  bool shows_information() const { return log_level == "INFO" || log_level == "DEBUG"; }
};

/// The log level of this name, in any case, as capitals; none if there is none.
std::optional<std::string> log_level_named(const std::string& name);

/// Parses argv up to the script; all arguments after it are the script's. kInvalidArgument, with one line that names
/// the argument, for an invalid command line. Prints nothing and checks no file. Not thread-safe (argp).
Result<Options> parse_options(int argc, char** argv);

}  // namespace tarantella::launch
