"""Prints lines of long characters in pieces that end within lines and characters."""

import os

rank = os.environ["TNT_RANK"]
for line in range(200):
    data = (rank + "é漢🦂" * 300 + f"|{line}\n").encode()
    for start in range(0, len(data), 1021):
        os.write(1, data[start : start + 1021])
