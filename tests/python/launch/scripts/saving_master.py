"""Rank 0 needs two seconds to save; rank 1, like any process without a handler, dies of SIGTERM.

With the argument `fails` rank 1 ends with exit code 3 as soon as it is ready. With `tells` rank 0 also sends SIGTERM to
the launcher.
"""

import os
import signal
import sys
import time
from pathlib import Path

rank = os.environ["TNT_RANK"]


def save(number, frame):
    if sys.argv[1:] == ["tells"]:
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(2)
    with open("saved" + rank, "a") as out:
        out.write("x")
    sys.exit()


if rank == "0":
    signal.signal(signal.SIGTERM, save)
Path("pid" + rank).write_text(str(os.getpid()))
Path("ready" + rank).touch()
if rank == "1" and sys.argv[1:] == ["fails"]:
    sys.exit(3)
while True:
    time.sleep(100)
