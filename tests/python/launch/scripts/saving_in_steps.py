"""Needs three seconds after SIGTERM to save its work, in steps that a pause does not shorten."""

import os
import signal
import sys
import time
from pathlib import Path

rank = os.environ["TNT_RANK"]


def save(number, frame):
    Path("saving" + rank).touch()
    for _ in range(30):
        time.sleep(0.1)
    Path("saved" + rank).touch()
    sys.exit()


signal.signal(signal.SIGTERM, save)
Path("ready" + rank).touch()
while True:
    time.sleep(100)
