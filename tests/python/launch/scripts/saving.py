"""Needs some seconds after SIGTERM to save its work, and its data worker for that."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

rank = os.environ["TNT_RANK"]
worker = subprocess.Popen(["sleep", "100"])


def save(number, frame):
    time.sleep(2.5)
    assert worker.poll() is None
    Path("saved" + rank).touch()
    sys.exit()


signal.signal(signal.SIGTERM, save)
Path("ready" + rank).touch()
while True:
    time.sleep(100)
