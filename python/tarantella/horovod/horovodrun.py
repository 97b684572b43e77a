"""The command `tarantella horovodrun`, which runs `python -m tarantella.horovod.horovodrun LAUNCHER words…`.

It translates the options of horovodrun into those of the launcher, and executes the launcher.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys

# Options of horovodrun without a counterpart: they tune parts that do not exist here, or need no tuning.
_WITHOUT_VALUE = (
    *("--gloo", "--mpi", "--jsrun", "--tcp", "--mpi-threads-disable", "--disable-cache", "--autotune"),
    *("--hierarchical-allreduce", "--hierarchical-allgather", "--torus-allreduce"),
    *("--stall-check", "--no-stall-check", "--timeline-mark-cycles", "--log-with-timestamp", "--log-without-timestamp"),
)
_WITH_VALUE = (
    *("--start-timeout", "--cycle-time-ms", "--cache-capacity", "--network-interface", "--network-interfaces"),
    *("--stall-check-warning-time-seconds", "--stall-check-shutdown-time-seconds", "--gloo-timeout-seconds"),
    *("--mpi-args", "--binding-args", "--num-nccl-streams", "--thread-affinity", "--autotune-log-file"),
)
_ELASTIC = ("--min-np", "--min-num-proc", "--max-np", "--max-num-proc", "--host-discovery-script", "--slots-per-host")
_LEVELS = {"TRACE": "DEBUG", "FATAL": "ERROR"}


def command_of(launcher: str, words: list[str]) -> list[str]:
    """Translates a command line of horovodrun. Exits with 2 and a message for an invalid one."""
    parser = _parser()
    options = parser.parse_args(words)
    if options.num_proc < 1:
        parser.error(f"-np must be at least 1 (got {options.num_proc})")
    for name in _ELASTIC:
        if getattr(options, _key(name)) is not None:
            parser.error(f"{name}: elastic jobs are not offered; a job keeps its number of ranks")
    ignored = [name for name in (*_WITHOUT_VALUE, *_WITH_VALUE) if getattr(options, _key(name))]
    if ignored:
        print(f"tarantella horovodrun: {', '.join(ignored)}: no counterpart, ignored", file=sys.stderr)
    if options.hosts and options.hostfile:
        parser.error("pass -H or --hostfile, not both")
    try:
        hosts = hosts_of(options.hosts, options.hostfile)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    slots = sum(number for _, number in hosts)
    if hosts and slots < options.num_proc:
        parser.error(f"-np {options.num_proc}: the hosts have {slots} slots")
    script = options.command[1:] if options.command[:1] == ["--"] else options.command
    interpreter = ""
    if script and re.fullmatch(r"python[0-9.]*", os.path.basename(script[0])):
        interpreter, *script = script
    if not script:
        parser.error("no script given: tarantella horovodrun -np 2 python train.py")
    settings = ["-n", str(options.num_proc), "--all-gpus", "--output-on-all-devices"]
    if hosts and not {name for name, _ in hosts} <= _names_of_this_machine():
        settings += ["--hostfile", options.hostfile or _written(hosts)]
    if os.path.dirname(interpreter):
        settings += ["--python-interpreter", interpreter]
    if options.fusion_threshold_mb is not None:
        settings += ["--fusion-threshold", str(options.fusion_threshold_mb * 1024)]
    level = options.log_level and _LEVELS.get(options.log_level.upper(), options.log_level)
    others = {"--timeline": options.timeline_filename, "--log-dir": options.output_filename, "--log-level": level}
    settings += [word for option in others.items() if option[1] is not None for word in option]
    return [launcher, *settings, "--", *script]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tarantella horovodrun",
        usage="tarantella horovodrun -np N [options] python script.py [arguments]",
        description="Runs a script on N ranks, with the options of horovodrun.",
        allow_abbrev=False,
    )
    parser.add_argument("-np", "--num-proc", type=int, required=True, metavar="N", help="number of ranks")
    parser.add_argument(
        "-H", "--hosts", metavar="HOST:SLOTS,…", help="the hosts, and the most ranks that each may have"
    )
    parser.add_argument("-hostfile", "--hostfile", metavar="FILE", help="the same, a line each: HOST slots=SLOTS")
    parser.add_argument("--fusion-threshold-mb", type=int, metavar="MB", help="largest bucket of gradients")
    parser.add_argument("--timeline-filename", metavar="FILE", help="write what all ranks do when")
    parser.add_argument("--output-filename", metavar="DIR", help="write the output of each rank to a file there")
    parser.add_argument("--log-level", metavar="LEVEL", help="show messages from this level up")
    parser.add_argument("--verbose", action="store_true", help="changes nothing")
    for name in _WITHOUT_VALUE:
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    for name in (*_WITH_VALUE, *_ELASTIC):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _key(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def hosts_of(hosts: str | None, hostfile: str | None) -> list[tuple[str, int]]:
    """The hosts and their numbers of slots.

    Raises ValueError for a host that is not written as HOST:SLOTS, or HOST slots=SLOTS in a file; OSError if the file
    cannot be read.
    """
    if hosts is not None:
        entries = [each.strip() for each in hosts.split(",")]
        pattern, form = r"([^:\s]+):(\d+)", "HOST:SLOTS, such as localhost:4"
    elif hostfile is not None:
        with open(hostfile, encoding="utf-8") as file:
            entries = [entry for line in file if (entry := line.split("#")[0].strip())]
        pattern, form = r"(\S+)\s+slots\s*=\s*(\d+)", "HOST slots=SLOTS"
    else:
        return []
    found = []
    for each in entries:
        match = re.fullmatch(pattern, each)
        if match is None:
            raise ValueError(f"a host is given as {form} (got {each!r})")
        found.append((match[1], int(match[2])))
    return found


def _written(hosts: list[tuple[str, int]]) -> str:
    """Writes a hostfile that only this process can read, also after it executes the launcher. Returns its path."""
    file = os.memfd_create("hosts", 0)
    os.write(file, "".join(f"{name} slots={slots}\n" for name, slots in hosts).encode())
    return f"/proc/self/fd/{file}"


def _names_of_this_machine() -> set[str]:
    own = socket.gethostname()
    return {"localhost", "127.0.0.1", "::1", own, own.split(".")[0], socket.getfqdn()}


if __name__ == "__main__":
    os.execv(sys.argv[1], command_of(sys.argv[1], sys.argv[2:]))
