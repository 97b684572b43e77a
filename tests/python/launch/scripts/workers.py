"""Each rank has a child in its group, one in a session of its own, and one of those whose parent has gone."""

import os
import signal
import subprocess
import time
from pathlib import Path

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen(["sleep", "100"], **streams)
subprocess.Popen(["sleep", "100"], start_new_session=True, **streams)
subprocess.run(["sh", "-c", "setsid sleep 100 & exit"], check=True, **streams)
if os.fork() == 0:
    os.setsid()
    time.sleep(100)
Path("ready" + os.environ["TNT_RANK"]).touch()
time.sleep(100)
