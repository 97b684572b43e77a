#include "launch/cli/option_table.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/cli/did_you_mean.h"
#include "launch/cli/subcommands.h"

namespace tarantella::launch {
namespace {

// Options of Python, for a hint.
constexpr const char* kOfPython[] = {"-m", "-c", "-u", "-O", "-W", "-X"};
constexpr char kSynopsis[] = "-- SCRIPT [ARGUMENT...]\n-- -m MODULE [ARGUMENT...]";

const argp_option* option_named(const std::string& name) {
  for (const argp_option* option = kOptions; option->name != nullptr; ++option) {
    if (name == std::string("--") + option->name ||
        (option->key < 0x80 && name == text("-", char(option->key)))) {
      return option;
    }
  }
  return nullptr;
}

}  // namespace

const argp_option kOptions[] = {
    {"n", kKeyRanks, "N", 0,
     "Number of ranks (default: the slots of the hostfile; else one per GPU, else the tasks of the batch "
     "job, else 1)",
     1},
    {"n-per-node", kKeyRanksPerNode, "N", 0, "Number of ranks on each host, in place of -n", 1},
    {"devices-per-node", kKeyRanksPerNode, nullptr, OPTION_ALIAS, nullptr, 1},
    {"hostfile", kKeyHostfile, "FILE", 0,
     "Hosts of the job, one per line: 'name' or 'name slots=4' (default: those of the batch job, else this "
     "one)",
     1},
    {"no-gpu", kKeyNoGpu, nullptr, 0, "Use no GPU (default: one GPU per rank if there are enough)", 1},
    {"no-gpus", kKeyNoGpu, nullptr, OPTION_ALIAS, nullptr, 1},
    {"all-gpus", kKeyAllGpus, nullptr, 0,
     "Show each rank the GPUs of all ranks of its host, for a script that takes the one of its local rank",
     1},
    {"pin-to-socket", kKeyPinToSocket, nullptr, 0,
     "Bind each rank to all cores of one socket (default: to its own share of the cores)", 1},
    {"pin-memory-to-socket", kKeyPinMemory, nullptr, 0, "Give each rank memory of its own socket only", 1},
    {"python-interpreter", kKeyInterpreter, "COMMAND", 0,
     "What runs the script, such as 'valgrind python3' (default: the Python of this installation); empty: "
     "the "
     "script is a program",
     1},
    {"x", kKeyVariable, "NAME=VALUE", 0,
     "Set variables of the ranks' environment; more may follow: -x A=1 B=2", 1},
    {"fusion-threshold", kKeyFusionThreshold, "KB", 0,
     "Largest bucket of gradients reduced together, in KB (default: 1024); 0: each gradient alone", 1},
    {"gather-limit", kKeyGatherLimit, "MIB", 0,
     "Most that a rank holds of all rows for a loss or metric of your own, in MiB (default: 256)", 1},
    {"grace-seconds", kKeyGrace, "S", 0,
     "Seconds that ranks have to end after a signal, until SIGKILL (default: 30; 1.5 after Ctrl-C)", 1},
    {"stall-timeout", kKeyStallTimeout, "S", 0,
     "End the job, with the Python stacks of all ranks, after a wait of S seconds for a rank that is alive "
     "(default: never)",
     1},
    {"start-timeout", kKeyStartTimeout, "S", 0,
     "Seconds that all hosts of the job have to start the launcher there (default: 60)", 1},
    {"max-restarts", kKeyMaxRestarts, "N", 0,
     "Start all ranks again after a failure, at most N times (default: 0)", 2},
    {"restart-on", kKeyRestartOn, "KINDS", 0,
     "The failures that count: killed, host and exception, separated by commas (default: killed,host)", 2},
    {"min-hosts", kKeyMinHosts, "N", 0,
     "Go on without lost hosts while N are left (default: all; the restart waits for them)", 2},
    {"host-timeout", kKeyHostTimeout, "S", 0,
     "Seconds that a restart waits for a lost host that it needs (default: 600)", 2},
    {"log-level", kKeyLogLevel, "LEVEL", 0,
     "Show messages from this level up: DEBUG, INFO, WARNING (default) or ERROR", 3},
    {"log-on-all-devices", kKeyLogOnAll, nullptr, 0,
     "Show stderr of all ranks, each line marked with its rank (default: only rank 0)", 3},
    {"log-on-all-ranks", kKeyLogOnAll, nullptr, OPTION_ALIAS, nullptr, 3},
    {"output-on-all-devices", kKeyOutputOnAll, nullptr, 0,
     "Show stdout and stderr of all ranks, each line marked with its rank (default: only rank 0)", 3},
    {"output-on-all-ranks", kKeyOutputOnAll, nullptr, OPTION_ALIAS, nullptr, 3},
    {"log-dir", kKeyLogDir, "FOLDER", 0, "Also write all output of each rank to FOLDER/rank-N.log", 3},
    {"timeline", kKeyTimeline, "FILE", 0, "Write to FILE what all ranks do when, for https://ui.perfetto.dev",
     3},
    {"dry-run", kKeyDryRun, nullptr, 0,
     "Check the job, print hosts, cores, environments and commands, and exit", 4},
    {"cleanup", kKeyCleanup, nullptr, 0,
     "List what killed jobs of yours have left on this machine, and end it if you agree", 4},
    {"force", kKeyForce, nullptr, 0, "With --cleanup: do not ask", 4},
    {"list-mpis", kKeyListMpis, nullptr, OPTION_HIDDEN, "For tarantella doctor", 4},
    {"this-host", kKeyThisHost, nullptr, OPTION_HIDDEN, "For tarantella scaling", 4},
    {"version", kKeyVersion, nullptr, 0, "Print the version and exit", 4},
    {"help", kKeyHelp, nullptr, 0, "Print this text and exit", 4},
    {nullptr, 0, nullptr, 0, nullptr, 0}};

std::string name_of(int key) {
  for (const argp_option* option = kOptions; option->name != nullptr; ++option) {
    if (option->key == key) return (option->name[1] == '\0' ? "-" : "--") + std::string(option->name);
  }
  return "";
}

std::string option_error(const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (const argp_option* option = option_named(name)) {
    const bool takes_value =
        option->arg != nullptr || option->key == kKeyRanksPerNode;  // an alias has no `arg`
    return text("option '", name, takes_value ? "' needs a value" : "' takes no value");
  }
  std::vector<std::string> known;
  for (const argp_option* option = kOptions; option->name != nullptr; ++option) {
    known.push_back(std::string("--") + option->name);
  }
  const std::string guess = did_you_mean(name, known);
  if (!guess.empty()) return text("unknown option '", name, "'; did you mean '", guess, "'? ", kUsage);
  for (const std::string_view python : kOfPython) {
    if (!name.starts_with("--") && name.starts_with(python)) {
      return text("unknown option '", name, "'; put options of Python after '--': tarantella -n 2 -- ", name,
                  " …");
    }
  }
  return text("unknown option '", name, "'; 'tarantella --help' lists them; ", kUsage);
}

void print_help() {
  std::string about =
      "Trains a Keras model on several processes (ranks) of this machine or of several.\v"
      "Example: tarantella -n 4 -- model.py --batch_size=64\n\nCommands (each has its own --help):";
  for (const Subcommand& each : kSubcommands) {
    if (each.module != nullptr) about += text("\n  tarantella ", each.name, "  ", each.summary);
  }
  // No note that "-n" takes what "--n" takes.
  ::setenv("ARGP_HELP_FMT", "no-dup-args-note,opt-doc-col=31", 0);
  const argp description = {kOptions, nullptr, kSynopsis, about.c_str(), nullptr, nullptr, nullptr};
  char name[] = "tarantella";
  argp_help(&description, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
  std::fflush(stdout);
}

}  // namespace tarantella::launch
