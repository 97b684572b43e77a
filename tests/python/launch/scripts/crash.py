"""Rank 1 crashes beside other threads."""

import ctypes
import os
import sys
import threading
import time


def breaks():
    ctypes.string_at(0)


for _ in range(8):
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print("TensorFlow was here", file=sys.stderr)
if os.environ["TNT_RANK"] == "1":
    breaks()
time.sleep(100)
