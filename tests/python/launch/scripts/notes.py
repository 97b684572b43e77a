"""Rank 1 reports 300 notes to the launcher and fails; rank 0 writes its id to the file `pid` and runs on."""

import os
import struct
import sys
import time
from pathlib import Path

if os.environ["TNT_RANK"] == "0":
    Path("new").write_text(str(os.getpid()))
    Path("new").rename("pid")
    time.sleep(100)
while not Path("pid").exists():
    time.sleep(0.01)
pipe = int(os.environ["TNT_REPORT"].split(":")[0])
for number in range(300):
    note = b"note %d" % number
    os.write(pipe, struct.pack("4i", 1, 3, 0, len(note)) + note)
time.sleep(0.3)
sys.exit(3)
