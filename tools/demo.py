"""`make demo`: trains the example on two ranks and on one process, prints a table of both, and compares their steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/quick_start/model.py"
GOAL = 0.97
# What TensorFlow writes before it reads TF_CPP_MIN_LOG_LEVEL; the launcher leaves it out.
START_LINE = re.compile(rb"WARNING: All log messages before absl::|I0000 \d\d:\d\d:")


def train(title: str, command: list[str]) -> dict[str, Any]:
    """Runs `command`, shows its output, and returns the results that the example wrote."""
    print(f"\n=== {title}: {' '.join(command)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "result.json"
        env = {"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ}
        env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH', os.defpath)}"
        with subprocess.Popen([*command, f"--json={report}"], cwd=ROOT, env=env, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if not START_LINE.match(line):
                    sys.stderr.buffer.write(line)
                    sys.stderr.flush()
        if process.returncode:
            sys.exit(f"{title} failed with exit code {process.returncode}")
        if not report.exists():
            sys.exit(f"{title} ended without writing its result")
        return json.loads(report.read_text(encoding="utf-8"))


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':<14}{'ranks':>6}{'test accuracy':>16}{'test loss':>12}{'samples/s':>12}"]
    lines += [
        f"{title:<14}{r['ranks']:>6}{r['accuracy']:>16.4f}{r['loss']:>12.4f}{r['samples_per_second']:>12,.0f}"
        for title, r in results.items()
    ]
    return "\n".join(lines)


def main() -> None:
    programs = Path(sys.executable).parent
    results = {
        "two ranks": train("two ranks", [f"{programs}/tarantella", "-n", "2", "--", EXAMPLE]),
        "one process": train("one process", [sys.executable, EXAMPLE]),
    }
    first = results["two ranks"]
    print(
        f"\nLeNet-5 on {first['data']}, {first['epochs']} epochs, global batch {first['batch_size']}; "
        "samples/s without the first epoch\n"
    )
    print(table(results))
    if first["ranks"] != 2:
        sys.exit(f"The run on two ranks had {first['ranks']}")
    bad = [title for title, r in results.items() if r["accuracy"] < GOAL]
    if bad:
        sys.exit(f"Test accuracy below {GOAL} on {' and on '.join(bad)}")
    print(
        "\nBoth take the same steps, up to rounding of float32, which many steps amplify. The first ones:", flush=True
    )
    verify = [f"{programs}/tarantella", "verify", "-n", "2", "--", EXAMPLE]
    sys.exit(subprocess.run(verify, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
