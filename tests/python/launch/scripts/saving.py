"""Needs some seconds after SIGTERM to save its work, in steps that a pause does not shorten, and its data worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

rank = os.environ["TNT_RANK"]
worker = subprocess.Popen(["sleep", "100"])


def save(number, frame):
    Path("saving" + rank).touch()
    for _ in range(30):
        time.sleep(0.1)
    assert worker.poll() is None
    Path("saved" + rank).touch()
    sys.exit()


signal.signal(signal.SIGTERM, save)
Path("ready" + rank).touch()
while True:
    time.sleep(100)
