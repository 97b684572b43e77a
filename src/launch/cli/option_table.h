#pragma once
// The options of the command line by name, and the texts made from them: the help and errors.

#include <argp.h>

#include <string>

namespace tarantella::launch {

/// What argp calls the options: the letter of a short one, or a number.
enum Key {
  kKeyRanks = 'n',
  kKeyVariable = 'x',
  kKeyHelp = 'h',
  kKeyHostfile = 0x100,
  kKeyRanksPerNode,
  kKeyNoGpu,
  kKeyAllGpus,
  kKeyPinToSocket,
  kKeyPinMemory,
  kKeyInterpreter,
  kKeyFusionThreshold,
  kKeyGatherLimit,
  kKeyGrace,
  kKeyStallTimeout,
  kKeyStartTimeout,
  kKeyMaxRestarts,
  kKeyRestartOn,
  kKeyMinHosts,
  kKeyHostTimeout,
  kKeyLogLevel,
  kKeyLogOnAll,
  kKeyOutputOnAll,
  kKeyLogDir,
  kKeyTimeline,
  kKeyDryRun,
  kKeyCleanup,
  kKeyForce,
  kKeyListMpis,
  kKeyThisHost,
  kKeyVersion,
};

constexpr char kUsage[] = "usage: tarantella [options] -- script.py [arguments]";

/// Ends with an entry whose name is null.
extern const argp_option kOptions[];

/// "--hostfile"; empty if no option has this key. Pure.
std::string name_of(int key);

/// The error message for an option that getopt refuses. Pure.
std::string option_error(const std::string& argument);

/// Prints the help text on stdout.
void print_help();

}  // namespace tarantella::launch
