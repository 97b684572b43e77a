"""Ends well when SIGUSR1 and SIGUSR2 have come, and its child has not got them."""

import os
import signal
import subprocess
import time
from pathlib import Path

got = set()
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: got.add(number))
worker = subprocess.Popen(["sleep", "100"])
Path("ready" + os.environ["TNT_RANK"]).touch()
deadline = time.monotonic() + 30
while len(got) < 2 and time.monotonic() < deadline:
    time.sleep(0.02)
assert len(got) == 2 and worker.poll() is None
