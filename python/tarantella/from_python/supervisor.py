"""Runs the launcher for `tarantella.run`: python -IS supervisor.py FOLDER COMMAND...

When the caller closes the stdin of this process, or ends, this process ends the launcher and removes the folder. It
forwards SIGINT, SIGTERM and SIGHUP. The exit code is that of the launcher, as a shell returns it.
"""

import os
import select
import signal
import sys

# The signals that end the launcher, and the seconds after each. A second SIGINT kills its ranks at once; after SIGKILL,
# its guard kills them.
STEPS = ((signal.SIGINT, 5), (signal.SIGINT, 5), (signal.SIGTERM, 5), (signal.SIGKILL, 5))
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Reset for the launcher: Python ignores some of these, and a notebook others.
STANDARD = (*PASSED_ON, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


def main(folder: str, command: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    no_input = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    launcher = os.posix_spawn(command[0], command, os.environ, file_actions=no_input, setsigdef=STANDARD, setsigmask=())
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(launcher, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    end = os.pidfd_open(launcher)
    ready, _, _ = select.select([0, end], [], [])
    if end not in ready:
        end_early(launcher, end, folder)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # its number may soon be another process's
    code = os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1])
    return code if code >= 0 else 128 - code


def end_early(launcher: int, end: int, folder: str) -> None:
    import shutil

    for number, seconds in STEPS:
        os.kill(launcher, number)
        if select.select([end], [], [], seconds)[0]:
            break
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
