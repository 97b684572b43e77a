"""Writes what this rank finds to rank<number>.json."""

import json
import os
import sys
from pathlib import Path

seen = {
    "env": dict(os.environ),
    "args": sys.argv,
    "cores": sorted(os.sched_getaffinity(0)),
    "python": sys.executable,
}
Path(f"rank{os.environ['TNT_RANK']}.json").write_text(json.dumps(seen))
